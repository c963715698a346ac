"""Detects processes that use a GPU without the device library."""
