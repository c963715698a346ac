"""Runs the real controllers without a cluster: what a simulated control plane needs."""
