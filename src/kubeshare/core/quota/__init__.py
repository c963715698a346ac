"""Quotas: by GPU model, and by namespace over all GPUs."""
