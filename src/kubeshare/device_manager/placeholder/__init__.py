"""Placeholder pods, which reserve a vGPU's physical GPU against native pods."""
