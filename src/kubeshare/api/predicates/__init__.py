"""Whether a pod can run on a node, apart from its GPU."""
