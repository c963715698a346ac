"""Benchmark of the scheduler extender beside Alibaba's own."""
