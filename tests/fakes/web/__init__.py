"""A cluster to look at, and the server of `kubeshare web` in front of it."""

from fakes.web.cluster import large_cluster, small_cluster
from fakes.web.serving import Served, served

__all__ = ["Served", "large_cluster", "served", "small_cluster"]
