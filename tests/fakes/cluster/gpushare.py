"""Pods and nodes of Alibaba's gpushare, whose pods ask in their manifests."""

from typing import Any

from expectations.vgpus import expect_owned
from fakes import manifests
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.disruptions import label_node, own
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD, VGPU_RESOURCE
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.dialects.write_back import GPUSHARE, GPUSHARE_ANNOTATIONS
from kubeshare.kube.resources import NODES, PODS


async def dedicate(cluster: FakeCluster, node: str, units: int) -> None:
    """Waits until a node is owned and dedicated; then its kubelet offers this much memory."""
    own(cluster, node)
    label_node(cluster, node, family="gpushare")
    await expect_owned(cluster, node)
    offer(cluster, node, units)


def offer(cluster: FakeCluster, node: str, units: int) -> None:
    """What the kubelet of an owned node offers, by the device plugin."""
    offered = {GPU_MEMORY: str(units), "cpu": "64"}
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(offered))


def gated_pod(cluster: FakeCluster, name: str, units: str, **more: Any) -> None:
    """A pod as the admission policy mutates it; ``more`` is metadata."""
    labels = {LABEL_ROLE: ROLE_POD} | more.pop("labels", {})
    metadata = {"namespace": "default", "labels": labels} | more
    limits = {GPU_MEMORY: units, VGPU_RESOURCE: "1"}
    made = manifests.pod(name, limits, metadata=metadata, schedulingGates=[{"name": GATE}])
    cluster.server.seed(PODS, made | {"status": {"phase": "Pending"}})


def published(cluster: FakeCluster, name: str) -> dict[str, str]:
    """The annotations of gpushare of a pod, without their prefix."""
    found = cluster.pod(name)
    assert found is not None, f"there is no pod {name}"
    annotations = found["metadata"].get("annotations") or {}
    return {
        key.removeprefix(GPUSHARE): value
        for key, value in annotations.items()
        if key in GPUSHARE_ANNOTATIONS
    }
