"""Placement by locality: Algorithm 1 of the KubeShare paper."""
