"""Derives GPUs from their users, for people who may not see vGPUs."""

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec import Struct, ValidationError, to_builtins

from kubeshare.api import sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.types.core_v1 import TERMINAL_PHASES, Pod
from kubeshare.api.types.v1 import VGPU, AllocatedGPU, Holder, VGPUSpec, VGPUStatus
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Raw
from kubeshare.web.views.nodes import Gpu


class _Own(Struct, frozen=True):
    gpu: AllocatedGPU
    holder: Holder


def own_gpus(
    node: str, found: Iterable[Raw], plain: Iterable[Pod], demands: Demands, unit: int
) -> list[Gpu]:
    """The GPUs of a node as the SharePods and pods there name them, with their shares alone.

    Args:
        node: the node.
        found: the SharePods on it.
        plain: the plain pods on it that ask for shares.
        demands: parses what they ask for.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.
    """
    by_id: dict[str, list[_Own]] = {}
    of_sharepods = (own for raw in found for own in _of_sharepod(raw, demands))
    of_pods = (own for pod in plain for own in _of_pod(pod, demands, unit))
    for own in chain(of_sharepods, of_pods):
        by_id.setdefault(own.gpu.id, []).append(own)
    return [Gpu(None, _vgpu(node, owns), partly_seen=True) for _, owns in sorted(by_id.items())]


def _vgpu(node: str, owns: list[_Own]) -> VGPU:
    # A SharePod knows more of its GPU than a pod does.
    gpu = max((own.gpu for own in owns), key=lambda gpu: gpu.uuid)
    return VGPU(
        metadata=ObjectMeta(name=gpu.id),
        spec=VGPUSpec(node_name=node, gpuid=gpu.id, uuid=gpu.uuid, model=gpu.model),
        status=VGPUStatus(phase="Active", holders=tuple(own.holder for own in owns)),
    )


def _of_sharepod(raw: Raw, demands: Demands) -> Iterator[_Own]:
    try:
        found, demand = sharepods.view(raw), demands.of_sharepod(raw)
    except (InvalidValueError, ValidationError):  # the latter passed another version's schema
        return
    if demand is None or found.status.phase in TERMINAL_PHASES:
        return
    holder = _holder(found.metadata, demand, started=bool(found.status.start_time))
    gpus = found.status.gpus or [AllocatedGPU(id=gpuid) for gpuid in sharepods.gpuids(found)]
    yield from (_Own(gpu, holder) for gpu in gpus)


def _of_pod(pod: Pod, demands: Demands, unit: int) -> Iterator[_Own]:
    try:
        demand = demands.of_pod(to_builtins(pod), unit=unit)
    except InvalidValueError:
        return
    if demand is None or pod.terminal:
        return
    holder = _holder(pod.metadata, demand, started=pod.status.phase == "Running")
    yield from (_Own(AllocatedGPU(id=gpuid), holder) for gpuid in pod.gpuids)


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
        latency_sensitive=share.latency_sensitive,
        affinity=demand.affinity,
        anti_affinity=demand.anti_affinity,
        exclusion=demand.exclusion,
    )
