"""Keeps each node's pool of idle vGPUs as its policy says."""
