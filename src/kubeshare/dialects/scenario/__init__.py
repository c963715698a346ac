"""Scenario files of ``kubeshare plan``: clusters, events, and the YAML they are written in."""
