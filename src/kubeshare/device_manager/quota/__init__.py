"""Keeps GPUQuotas up to date."""
