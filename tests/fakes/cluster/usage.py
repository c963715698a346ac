"""Accounts as node agents write them."""

from datetime import timedelta

from fakes.cluster.cluster import FakeCluster
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.simulator.control.storage import BEGINNING


def account(cluster: FakeCluster, name: str, days: float) -> None:
    """An account until so many days before the beginning."""
    at = micro_timestamp(BEGINNING - timedelta(days=days))
    status = {"nodeName": "n1", "grant": name, "pod": name, "startedAt": at, "observedAt": at}
    cluster.server.seed(
        SHARE_USAGES, {"metadata": {"name": name, "namespace": "default"}, "status": status}
    )
