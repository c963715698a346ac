"""Sorted indexes that answer "the best that fits" without looking at everything."""
