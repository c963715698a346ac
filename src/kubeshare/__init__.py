"""KubeShare: many pods on one GPU, each with a guaranteed share of time and its own memory."""

__version__ = "0.1.0"
