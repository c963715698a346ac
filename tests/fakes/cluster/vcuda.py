"""Pods and nodes of Tencent's Gaia, whose pods ask in their manifests."""

from typing import Any

from expectations.vgpus import expect_owned
from fakes import manifests
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.disruptions import label_node, own
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD, VGPU_RESOURCE
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.dialects.write_back import is_of_vcuda
from kubeshare.kube.resources import NODES, PODS, Raw

BLOCKS = 64
"""Of each GPU, which has 16 GiB."""


async def dedicate(cluster: FakeCluster, node: str, gpus: int) -> None:
    """Waits until a node is owned and dedicated; then its kubelet offers this many GPUs."""
    own(cluster, node)
    label_node(cluster, node, family="vcuda")
    await expect_owned(cluster, node)
    offer(cluster, node, gpus)


def offer(cluster: FakeCluster, node: str, gpus: int) -> None:
    """Lets the device plugin of a node offer this many GPUs, and its kubelet CPUs."""
    offered = {CORE: str(100 * gpus), MEMORY: str(BLOCKS * gpus), "cpu": "64"}
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(offered))


def asking(name: str, cores: str, blocks: str = "") -> Raw:
    """A container as the admission policy mutates it."""
    limits = {CORE: cores, VGPU_RESOURCE: "1"} | ({MEMORY: blocks} if blocks else {})
    return {"name": name, "image": "train:1", "resources": {"limits": limits}}


def gated_pod(cluster: FakeCluster, name: str, *containers: Raw, **annotations: str) -> None:
    """A pod with these containers, as the admission policy mutates it."""
    metadata: dict[str, Any] = {"namespace": "default", "labels": {LABEL_ROLE: ROLE_POD}}
    metadata["annotations"] = annotations
    made = manifests.pod(name, metadata=metadata, schedulingGates=[{"name": GATE}])
    made["spec"]["containers"] = list(containers)
    cluster.server.seed(PODS, made | {"status": {"phase": "Pending"}})


def published(cluster: FakeCluster, name: str) -> dict[str, str]:
    """What the published scheduler and agent write into a pod."""
    found = cluster.pod(name)
    assert found is not None, f"there is no pod {name}"
    annotations = found["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if is_of_vcuda(key)}
