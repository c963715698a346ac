"""Scenario files of ``kubeshare plan``: clusters, events and their YAML."""
