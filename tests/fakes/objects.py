"""Builds API objects in the form in which the programs decode them.

Names, amounts and phases have defaults, so that a test names only what it is about.
``fakes.manifests`` builds the same objects as JSON.
"""

from collections.abc import Collection
from typing import Any

from msgspec import structs

from kubeshare.api.types import v1
from kubeshare.api.types.core_v1 import (
    Container,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceNeeds,
)
from kubeshare.kube.meta import Condition, ObjectMeta

GIB = 1 << 30


def metadata(name: str, version: int = 1, uid: str = "u", **more: Any) -> ObjectMeta:
    """Metadata with ``version`` as its resource version; ``more`` are fields by name."""
    return ObjectMeta(name=name, uid=uid, resource_version=str(version), **more)


def node(name: str = "n1", gpus: int = 2, **of_metadata: Any) -> Node:
    """A node that offers so many whole GPUs and 8 CPUs."""
    allocatable: dict[str, str | int] = {"nvidia.com/gpu": gpus, "cpu": "8"}
    return Node(metadata=metadata(name, **of_metadata), status=NodeStatus(allocatable=allocatable))


def gpunode(
    name: str = "n1",
    *gibibytes: int,
    unhealthy: Collection[int] = (),
    link: str = "",
    owned: str = "",
    **of_metadata: Any,
) -> v1.GPUNode:
    """A node's GPUs, ``GPU-NAME-0`` and so on, by default two of 16 GiB.

    ``unhealthy`` has the indices of those that have failed, ``link`` the level of the
    link between the first two, ``owned`` the status of the condition Owned of an owned node.
    """
    devices = tuple(
        v1.GPUDevice(
            uuid=f"GPU-{name}-{index}",
            index=index,
            model="V100",
            memory_bytes=size * GIB,
            healthy=index not in unhealthy,
        )
        for index, size in enumerate(gibibytes or (16, 16))
    )
    links = (v1.GPULink(a=0, b=1, link=link),) if link else ()
    spec = v1.GPUNodeSpec(devices=devices, links=links)
    condition = Condition(type="Owned", status=owned, reason="Owned")
    status = v1.GPUNodeStatus(mode="owned", conditions=(condition,)) if owned else None
    return v1.GPUNode(
        metadata=metadata(name, **of_metadata), spec=spec, status=status or v1.GPUNodeStatus()
    )


def vgpu(
    name: str = "a",
    node_name: str = "n1",
    uuid: str = "",
    *,
    phase: str = "Creating",
    pool: str = "onDemand",
    holders: tuple[v1.Holder, ...] = (),
    **of_metadata: Any,
) -> v1.VGPU:
    """A vGPU of 16 GiB."""
    return v1.VGPU(
        metadata=metadata(name, **of_metadata),
        spec=v1.VGPUSpec(
            node_name=node_name, pool=pool, uuid=uuid, model="V100", memory_bytes=16 * GIB
        ),
        status=v1.VGPUStatus(phase=phase, holders=holders),
    )


def with_degraded(vgpu: v1.VGPU, reason: str, message: str = "", status: str = "True") -> v1.VGPU:
    """The vGPU with that condition."""
    condition = Condition(type="Degraded", status=status, reason=reason, message=message)
    return structs.replace(vgpu, status=structs.replace(vgpu.status, conditions=(condition,)))


def holder(demand: str, request_micros: int = 300_000, **fields: Any) -> v1.Holder:
    """The holder of a demand, of 1 GiB; ``fields`` are further fields of ``Holder``."""
    known: dict[str, Any] = {"name": demand, "request_micros": request_micros, "memory_bytes": GIB}
    return v1.Holder(demand=demand, **(known | fields))


def pod(
    name: str,
    node_name: str = "n1",
    *,
    placeholder_of: str = "",
    phase: str = "Running",
    gpus: int = 1,
    **of_metadata: Any,
) -> Pod:
    """A pod with whole GPUs; the placeholder of a vGPU if that is named."""
    labels = (
        {"kubeshare.nthu/role": "placeholder", "kubeshare.nthu/vgpu": placeholder_of}
        if placeholder_of
        else {}
    )
    needs = ResourceNeeds(limits={"nvidia.com/gpu": gpus})
    return Pod(
        metadata=metadata(name, namespace="kubeshare-system", labels=labels, **of_metadata),
        spec=PodSpec(node_name=node_name, containers=(Container(name="main", resources=needs),)),
        status=PodStatus(phase=phase),
    )
