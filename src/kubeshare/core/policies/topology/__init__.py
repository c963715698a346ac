"""Placement by GPU topology: the algorithms of the Gaia paper."""
