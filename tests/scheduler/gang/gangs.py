"""Gangs that tests make, and where they are."""

from fakes import manifests
from fakes.cluster import FakeCluster
from kubeshare.api.types.v1 import VGPUS


def labels(needed: int, name: str = "g", **more: str) -> dict[str, str]:
    said = {"group_name": name, "min_available": str(needed), **more}
    return {f"sharedgpu/{key}": value for key, value in said.items()}


def gang(cluster: FakeCluster, *names: str, needed: int = 0, request: str = "1") -> None:
    for name in names:
        cluster.share(name, request, labels=labels(needed or len(names)))


def nodes(cluster: FakeCluster) -> list[str]:
    return sorted(vgpu["spec"]["nodeName"] for vgpu in cluster.server.all(VGPUS))


def hold_nothing(cluster: FakeCluster, name: str) -> None:
    """Give a member a holder of no size, as a write that was carried out late might."""
    first = min(vgpu["metadata"]["name"] for vgpu in cluster.server.all(VGPUS))
    uid = cluster.sharepod(name)["metadata"]["uid"]
    holder = manifests.holder(uid, name, requestMicros=0, memoryBytes=0)
    cluster.server.change(VGPUS, first, "", lambda raw: raw["status"]["holders"].append(holder))
