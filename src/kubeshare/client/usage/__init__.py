"""Sums what was used of the GPUs."""
