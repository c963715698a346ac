"""``kubeshare plan``: places the demands of a scenario file."""
