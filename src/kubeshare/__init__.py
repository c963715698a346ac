"""KubeShare: many pods share one GPU, each with guaranteed time and memory."""

__version__ = "0.1.0"
