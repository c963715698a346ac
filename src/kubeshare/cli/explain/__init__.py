"""``kubeshare explain``: where a pod of the cluster went or would go, and why not elsewhere."""
