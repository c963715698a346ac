"""Checks of the C code that no compiler makes."""
