"""Placement by bin packing, as Alibaba's gpushare does it."""
