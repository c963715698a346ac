"""``kubeshare migrate kubeshare``: replaces versions 1 and 2 of KubeShare by this one."""
