"""``kubeshare migrate kubeshare``: replaces versions 1 and 2 by this one."""
