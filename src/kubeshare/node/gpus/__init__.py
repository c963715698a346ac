"""This node's GPUs: discovery, health, and which vGPU each one is."""
