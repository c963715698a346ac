"""Reconciles vGPUs: activation, health, holders, eviction, deletion."""
