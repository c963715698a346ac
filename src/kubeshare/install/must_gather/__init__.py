"""Collects what finds a fault in a cluster, without users' data."""
