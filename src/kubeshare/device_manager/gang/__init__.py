"""Gangs that hold GPUs but do not start in time."""
