"""Gang scheduling: all members get GPUs, or none does."""
