"""KubeShare: many pods on one GPU, each with a guaranteed share of time and a hard share of memory."""

__version__ = "0.1.0"
