"""Rules and an index for policies that take GPUs one by one in a fixed order."""
