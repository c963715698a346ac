"""Figures of papers, run again: the numbers here beside the claims there."""
