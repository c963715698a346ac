"""``kubeshare trace``: what a cluster runs, as a file for ``kubeshare sim``."""
