"""Preemption: evicts pods for higher priorities and reserves their room."""
