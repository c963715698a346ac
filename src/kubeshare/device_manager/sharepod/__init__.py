"""Reconciles SharePods: reserves GPUs, creates pods, writes status, finalizes."""
