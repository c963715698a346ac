"""Explains why a demand does not fit, and the smallest change that would let it."""
