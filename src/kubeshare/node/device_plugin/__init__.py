"""Offers resources of owned GPUs that the kubelet counts, and nothing more."""
