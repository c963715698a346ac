"""Keeps the number of accounts within what the configuration says."""
