"""Placeholder pods: they keep the GPU of a vGPU from native pods."""
