"""Compiles the modules of a handover with mypyc."""
