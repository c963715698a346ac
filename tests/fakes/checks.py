"""Facts of a cluster in which every check of `kubeshare doctor` is content."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

import kubeshare
from kubeshare.api.types.constants import DEVICE_MANAGER, DRA_DRIVER, NAMESPACE, SCHEDULER
from kubeshare.api.types.v1 import GPUDevice, GPUNode, GPUNodeSpec
from kubeshare.install import manifests
from kubeshare.install.checks.facts import (
    InstallationFacts,
    Node,
    NodeInfo,
    NodeStatus,
    PlatformFacts,
    Server,
    Slice,
    SliceSpec,
)
from kubeshare.install.checks.installation import object_key
from kubeshare.install.checks.platform import GATES
from kubeshare.install.readiness import WORKLOADS
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.kube.controller.leader_election import Lease, LeaseSpec
from kubeshare.kube.meta import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = "n1"
WANTED = manifests.load(manifests.Options())


def node(
    name: str = NODE,
    *,
    kubelet: str = "v1.36.3",
    runtime: str = "containerd://2.1.4",
    offers: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Node:
    """A node, by default with two GPUs."""
    return Node(
        metadata=ObjectMeta(name=name, labels=dict(labels or {})),
        status=NodeStatus(
            node_info=NodeInfo(kubelet_version=kubelet, container_runtime_version=runtime),
            allocatable=dict(offers if offers is not None else {"nvidia.com/gpu": "2"}),
        ),
    )


def gpunode(name: str = NODE, *, driver: str = "550.54.14", **device: Any) -> GPUNode:
    """What the agent of a node with one GPU reports."""
    gpu = GPUDevice(uuid="GPU-1", index=0, **device)
    spec = GPUNodeSpec(driver_version=driver, agent_version=kubeshare.__version__, devices=(gpu,))
    return GPUNode(metadata=ObjectMeta(name=name), spec=spec)


def lease(name: str, *, renewed: datetime = NOW, holder: str = "a") -> Lease:
    """A Lease."""
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=10, renew_time=micro_timestamp(renewed)
    )
    return Lease(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)


def installed(manifest: manifests.Manifest) -> manifests.Manifest:
    """The object that an API server and its controllers make of a manifest."""
    stored: manifests.Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
    kind, metadata, spec = stored["kind"], stored["metadata"], stored.get("spec", {})
    metadata["generation"] = 1
    if kind == "CustomResourceDefinition":
        established = {"type": "Established", "status": "True"}
        stored["status"] = {"conditions": [established], "storedVersions": ["v1"]}
    if kind in WORKLOADS:
        wanted = spec.get("replicas", 1)
        ready = {"DaemonSet": "numberReady", "Deployment": "readyReplicas"}[kind]
        updated = {"DaemonSet": "updatedNumberScheduled", "Deployment": "updatedReplicas"}[kind]
        scheduled = dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled"), wanted)
        counts = {**scheduled, updated: wanted, ready: wanted}
        stored["status"] = {"observedGeneration": 1, **counts}
    return stored


def platform(**changed: Any) -> PlatformFacts:
    """A cluster that can have KubeShare, but for what is changed."""
    slices = (Slice(metadata=ObjectMeta(name="s"), spec=SliceSpec(driver="other", node_name=NODE)),)
    facts: dict[str, Any] = {
        "server": Server(version="v1.36.3", now=NOW),
        "gates": dict.fromkeys(GATES, True),
        "nodes": (node(),),
        "slices": slices,
        "namespace_labels": {"kubernetes.io/metadata.name": NAMESPACE},
        "node_leases": (lease(NODE),),
    }
    return PlatformFacts(**{**facts, **changed})


def installation(**changed: Any) -> InstallationFacts:
    """An installation that is whole and at work, but for what is changed."""
    facts: dict[str, Any] = {
        "now": NOW,
        "wanted": WANTED,
        "objects": {object_key(each): installed(each) for each in WANTED},
        "leases": (lease(SCHEDULER), lease(DEVICE_MANAGER)),
        "gpunodes": (gpunode(),),
        "gpu_nodes": frozenset({NODE}),
        "attached_nodes": frozenset({NODE}),
    }
    return InstallationFacts(**{**facts, **changed})


def own_slice(name: str = NODE) -> Slice:
    """What KubeShare's driver offers on a node."""
    spec = SliceSpec(driver=DRA_DRIVER, node_name=name)
    return Slice(metadata=ObjectMeta(name=f"{name}-slice"), spec=spec)
