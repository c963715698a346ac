"""Keeps each node's pool of vGPUs as its policy says: idle ones, warm ones, reclaimed ones."""
