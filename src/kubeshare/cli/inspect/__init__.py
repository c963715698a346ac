"""``kubectl inspect gpushare``: how much memory of which GPU is allocated to which pod."""
