"""Releases the GPUs of gangs that do not start in time."""
