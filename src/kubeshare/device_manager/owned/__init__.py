"""Takes over the GPUs of nodes that KubeShare owns, and gives them back."""
