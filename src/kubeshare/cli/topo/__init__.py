"""`kubeshare topo`: how the GPUs of a node are linked."""
