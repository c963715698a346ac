"""Derives GPUs from SharePods, for users who may not see vGPUs."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, ValidationError

from kubeshare.api import sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.v1 import VGPU, AllocatedGPU, Holder, VGPUSpec, VGPUStatus
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Raw
from kubeshare.web.views.nodes import Gpu


class _Own(Struct, frozen=True):
    gpu: AllocatedGPU
    holder: Holder


def own_gpus(node: str, found: Iterable[Raw], demands: Demands) -> list[Gpu]:
    """The GPUs of a node as the SharePods there name them, with their shares alone.

    Args:
        node: the node.
        found: the SharePods on it.
        demands: parses what they ask for.
    """
    by_id: dict[str, list[_Own]] = {}
    for raw in found:
        for own in _own(raw, demands):
            by_id.setdefault(own.gpu.id, []).append(own)
    return [Gpu(None, _vgpu(node, owns), partly_seen=True) for _, owns in sorted(by_id.items())]


def _vgpu(node: str, owns: list[_Own]) -> VGPU:
    gpu = owns[0].gpu
    return VGPU(
        metadata=ObjectMeta(name=gpu.id),
        spec=VGPUSpec(node_name=node, gpuid=gpu.id, uuid=gpu.uuid, model=gpu.model),
        status=VGPUStatus(phase="Active", holders=tuple(own.holder for own in owns)),
    )


def _own(raw: Raw, demands: Demands) -> Iterator[_Own]:
    try:
        found = sharepods.view(raw)
    except ValidationError:  # it passed the schema of another version
        return
    if found.status.phase in TERMINAL_PHASES:
        return
    try:
        demand = demands.of_sharepod(raw)
    except InvalidValueError:
        return
    if demand is None:
        return
    gpus = found.status.gpus or [AllocatedGPU(id=gpuid) for gpuid in sharepods.gpuids(found)]
    for gpu in gpus:
        yield _Own(gpu, _holder(found.metadata, demand, started=bool(found.status.start_time)))


def _holder(metadata: ObjectMeta, demand: Demand, *, started: bool) -> Holder:
    """The holder of a demand; of several different shares it is that of the first."""
    share = demand.per_gpu()[0]
    return Holder(
        demand=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        pod_uid=metadata.uid if started else "",
        request_micros=share.request_micros,
        limit_micros=share.limit_micros,
        memory_bytes=share.memory.bytes or 0,
        affinity=demand.affinity,
        anti_affinity=demand.anti_affinity,
        exclusion=demand.exclusion,
    )
