"""``kubeshare explain``: where a pod went or would go, and why."""
