"""Runs the real controllers without a cluster."""
