"""The topology policy of the Gaia paper."""
