"""Manifest families: each module turns what one of them says into the core's Demand."""
