"""Binds containers with shares to the CPUs near their GPUs."""
