"""``kubeshare sim``: jobs on a simulated cluster."""
