"""Manifest families: each module parses one of them into a Demand."""
