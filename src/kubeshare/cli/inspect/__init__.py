"""``kubectl inspect gpushare``: the allocated memory of each GPU."""
