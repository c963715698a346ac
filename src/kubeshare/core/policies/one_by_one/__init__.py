"""Policies that take GPUs one by one in a fixed order."""
