"""How the GPUs of a node are linked."""
