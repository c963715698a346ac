"""Constraints that bind under every placement policy; policies only rank."""
