"""Detects processes that use a GPU past the device library."""
