"""Reconciles plain pods that share GPUs without a SharePod."""
