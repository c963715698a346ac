"""``kubeshare migrate``: moves nodes of gpushare or gpu-manager under their running pods."""
