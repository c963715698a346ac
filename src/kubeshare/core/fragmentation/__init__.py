"""How much of what is left of GPUs demands can use."""
