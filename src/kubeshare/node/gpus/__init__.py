"""This node's GPUs: discovery, health, and their vGPUs."""
