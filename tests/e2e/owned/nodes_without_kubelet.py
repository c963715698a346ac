"""Owned nodes that are objects only: pods are bound to them by all real programs, and do not run.

The test writes what their kubelets and node agents would.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final

from e2e.space import Space
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.units import GI
from kubeshare.dialects.vcuda import BLOCK, CORE, CORES, MEMORY
from kubeshare.node.dra.resource_slice import slice_body

GPUS: Final = 2
MEMORY_BYTES: Final = 16 * GI
_NODES: Final = "/api/v1/nodes"
_GPUNODES: Final = "/apis/kubeshare.nthu/v1/gpunodes"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_SINCE: Final = "2026-01-01T00:00:00Z"


@contextmanager
def made_nodes(stage: Stage, space: Space, names: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Nodes of two GPUs each for pods of Gaia; the pods of the namespace go with them.

    Yields what keeps them ready for the next 50 seconds.
    """
    try:
        for number, name in enumerate(names):
            _make(stage, name, [f"GPU-{number:08x}-{index:04x}" for index in range(GPUS)])
        _report_ready(stage, names)
        eventually(lambda: _static(stage, names) == GPUS * len(names), "static vGPUs")
        yield partial(_report_ready, stage, names)
    finally:
        at_once = {"gracePeriodSeconds": 0}
        stage.lab.api.send("DELETE", f"/api/v1/namespaces/{space.name}/pods", at_once)
        for name in names:
            stage.lab.api.send("DELETE", f"{_NODES}/{name}")
            stage.lab.api.send("DELETE", f"{_GPUNODES}/{name}")
        eventually(lambda: not _static(stage, names), "their vGPUs to be deleted")
        _delete_unbound(stage)


def _delete_unbound(stage: Stage) -> None:
    """Delete the pods of DaemonSets for these nodes, which Kubernetes does minutes later."""
    unbound = [
        pod["metadata"]["name"]
        for pod in stage.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
        if pod["metadata"].get("ownerReferences", [{}])[0].get("kind") == "DaemonSet"
        and "nodeName" not in pod["spec"]
    ]
    if unbound:
        stage.kubectl("delete", "pods", "-n", NAMESPACE, "--ignore-not-found", *unbound)


def _static(stage: Stage, names: Sequence[str]) -> int:
    return sum(vgpu["spec"]["nodeName"] in names for vgpu in stage.vgpus())


def _make(stage: Stage, name: str, uuids: Sequence[str]) -> None:
    send = stage.lab.api.send
    owned = {"kubeshare.nthu/gpus": "owned", "kubeshare.nthu/family": "vcuda"}
    labels = {"kubernetes.io/hostname": name, **owned}
    made: Raw = send("POST", _NODES, _object("v1", "Node", name, labels=labels))
    # No CPU is offered, so no pod of a DaemonSet is bound.
    room = {"cpu": "0", "memory": "64Gi", "pods": "10"}
    room |= {CORE: str(CORES * GPUS), MEMORY: str(GPUS * MEMORY_BYTES // BLOCK)}
    _patch(stage, _NODES, name, {"status": {"allocatable": room, "capacity": room}})
    devices = [
        {"uuid": uuid, "index": index, "minor": index, "model": "Tesla P4"}
        | {"memoryBytes": MEMORY_BYTES}
        for index, uuid in enumerate(uuids)
    ]
    spec = {"count": GPUS, "devices": devices, "supportsOwned": True, "supportsShares": True}
    send("POST", _GPUNODES, _object("kubeshare.nthu/v1", "GPUNode", name) | {"spec": spec})
    condition = {"type": "Owned", "status": "True", "reason": "Owned", "message": "by the test"}
    condition["lastTransitionTime"] = _SINCE
    _patch(stage, _GPUNODES, name, {"status": {"mode": "owned", "conditions": [condition]}})
    offered = slice_body(name, made["metadata"]["uid"])
    send("POST", _SLICES, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | offered)


def _report_ready(stage: Stage, names: Sequence[str]) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    for name in names:
        heard = ready | {"lastHeartbeatTime": now, "lastTransitionTime": _SINCE}
        _patch(stage, _NODES, name, {"status": {"conditions": [heard]}})


def _object(version: str, kind: str, name: str, **metadata: object) -> Raw:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


def _patch(stage: Stage, path: str, name: str, patch: Raw) -> None:
    merge = "application/merge-patch+json"
    stage.lab.api.requests.send("PATCH", f"{path}/{name}/status", patch, content_type=merge)
