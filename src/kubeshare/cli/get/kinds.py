"""What each kind of object shows, in a table and in JSON."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode, SharePod
from kubeshare.client.sharepod import SharePodState
from kubeshare.core.units import format_memory
from kubeshare.kube.resources import Resource

Fields: TypeAlias = Mapping[str, Any]
"""An object in JSON: names, numbers, texts, and lists of texts."""


class Kind(NamedTuple):
    """A kind of objects.

    Attributes:
        title: as in manifests.
        resource: how it is read.
        fields: what JSON, YAML and CSV have of an object.
        columns: the fields of a table, after the name, and their titles.
        wide: further ones of a wide table.
    """

    title: str
    resource: Resource[Any]
    fields: Callable[[Any], Fields]
    columns: Mapping[str, str]
    wide: Mapping[str, str]

    @property
    def namespaced(self) -> bool:
        """Whether its objects are in namespaces."""
        return self.resource.namespaced


def _sharepod(view: SharePod) -> Fields:
    state = SharePodState.of(view)
    blocker = state.blocker
    return {
        "kind": SHAREPODS.kind,
        "namespace": state.namespace,
        "name": state.name,
        "phase": state.phase,
        "ready": state.ready,
        "gpuids": [gpu.id for gpu in state.gpus],
        "node": state.node,
        "request": state.request,
        "limit": state.limit,
        "memory": state.memory,
        "reason": blocker.reason if blocker else "",
        "created": state.created,
        "uuids": [gpu.uuid for gpu in state.gpus],
        "models": sorted({gpu.model for gpu in state.gpus} - {""}),
        "message": blocker.message if blocker else state.message,
    }


def _vgpu(vgpu: VGPU) -> Fields:
    spec, status = vgpu.spec, vgpu.status
    return {
        "kind": VGPUS.kind,
        "name": vgpu.gpuid,
        "node": spec.node_name,
        "phase": status.phase,
        "holders": len(status.holders),
        "requestedMicros": sum(holder.request_micros for holder in status.holders),
        "requested": status.summary.requested,
        "memoryRequestedBytes": sum(holder.memory_bytes for holder in status.holders),
        "memoryBytes": spec.memory_bytes,
        "uuid": spec.uuid,
        "created": vgpu.metadata.creation_timestamp or "",
        "model": spec.model,
        "pool": spec.pool,
        "heldBy": sorted({f"{holder.namespace}/{holder.name}" for holder in status.holders}),
    }


def _node(node: GPUNode) -> Fields:
    devices = node.spec.devices
    return {
        "kind": GPUNODES.kind,
        "name": node.metadata.name,
        "mode": node.status.mode,
        "gpus": len(devices),
        "models": sorted({device.model for device in devices} - {""}),
        "memoryBytes": sum(device.memory_bytes for device in devices),
        "unhealthy": [str(device.index) for device in devices if not device.healthy],
        "created": node.metadata.creation_timestamp or "",
        "driver": node.spec.driver_version,
        "agent": node.spec.agent_version,
    }


KINDS: Final[Mapping[str, Kind]] = {
    "sharepods": Kind(
        "SharePod",
        SHAREPODS.into(SharePod),
        _sharepod,
        {
            "phase": "PHASE",
            "ready": "READY",
            "gpuids": "GPUID",
            "node": "NODE",
            "request": "REQUEST",
            "limit": "LIMIT",
            "memory": "MEMORY",
            "reason": "WHY",
            "created": "AGE",
        },
        {"uuids": "UUID", "models": "MODEL", "message": "MESSAGE"},
    ),
    "vgpus": Kind(
        "vGPU",
        VGPUS.into(VGPU),
        _vgpu,
        {
            "node": "NODE",
            "phase": "PHASE",
            "holders": "HOLDERS",
            "requested": "REQUESTED",
            "memoryRequestedBytes": "MEMORY",
            "memoryBytes": "OF",
            "created": "AGE",
        },
        {"uuid": "UUID", "model": "MODEL", "pool": "POOL", "heldBy": "HELD BY"},
    ),
    "nodes": Kind(
        "node",
        GPUNODES.into(GPUNode),
        _node,
        {
            "mode": "MODE",
            "gpus": "GPUS",
            "models": "MODEL",
            "memoryBytes": "MEMORY",
            "unhealthy": "UNHEALTHY",
            "created": "AGE",
        },
        {"driver": "DRIVER", "agent": "AGENT"},
    ),
}
"""Name on the command line → the kind."""
ALIASES: Final[Mapping[str, str]] = {
    "sharepod": "sharepods",
    "shp": "sharepods",
    "vgpu": "vgpus",
    "node": "nodes",
    "gpunodes": "nodes",
    "gpunode": "nodes",
}
"""Other names of them."""


def cell(key: str, value: object, now: datetime) -> str:
    """A field as text of a table; ``-`` for none."""
    if key == "created":
        return age(str(value), now) if value else "-"
    if key.endswith("Bytes") and isinstance(value, int):
        return format_memory(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(value) or "-"
    return _one_line(str(value)) or "-"


def _one_line(text: str) -> str:
    """Text without what would move the cursor: a pod's message is its containers' own."""
    return "".join(each if each.isprintable() else " " for each in text).strip()


def age(created: str, now: datetime) -> str:
    """The time since then in its largest unit, as kubectl shows it: ``45s``, ``12m``, ``3d``."""
    seconds = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
