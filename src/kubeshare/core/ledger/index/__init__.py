"""Sorted collections that find the best fit without a scan."""
