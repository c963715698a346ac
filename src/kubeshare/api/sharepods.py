"""Questions about SharePods, in either spelling of their fields.

A SharePod is kept as a raw object, since its spec becomes a pod's; a narrow struct is a view
of it. Its demand comes from :mod:`kubeshare.api.demands`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUSpec, SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.units import format_memory, format_share
from kubeshare.dialects.share_fields import ANNOTATIONS, without_own_gpuid

_BOOKKEEPING: Final = frozenset({"resourceVersion", "managedFields"})
"""Fields of metadata that change with every write."""


def view(raw: Mapping[str, Any]) -> SharePod:
    """The narrow struct of a raw SharePod."""
    return msgspec.convert(raw, SharePod)


def gpuids(sharepod: SharePod) -> tuple[str, ...]:
    """The GPUIDs in its spec or annotation, sorted; empty if there are none."""
    gpu = sharepod.spec.gpu
    annotations = without_own_gpuid(
        sharepod.metadata.annotations, decided=gpu.attempt > 0, given=gpu.id_given
    )
    return _gpuids(gpu.ids, gpu.id, annotations)


def gpuids_of(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The same for a raw SharePod: an index calls it for every change."""
    gpu = (raw.get("spec") or {}).get("gpu") or {}
    decided, given = bool(gpu.get("attempt")), bool(gpu.get("idGiven"))
    annotations = without_own_gpuid(
        raw["metadata"].get("annotations") or {}, decided=decided, given=given
    )
    return _gpuids(gpu.get("ids") or (), gpu.get("id") or "", annotations)


def names(sharepod: SharePod, vgpu: VGPU) -> bool:
    """Whether a SharePod whose node is decided names a vGPU."""
    here = sharepod.spec.node_name == vgpu.spec.node_name
    return here and vgpu.gpuid in gpuids(sharepod)


def decided(sharepod: SharePod) -> bool:
    """Whether its GPUs and its node are written in it, by Sched or by its author."""
    return bool(gpuids(sharepod) and sharepod.spec.node_name)


def decision_words(sharepod: SharePod) -> tuple[Reason, str]:
    """Reason and message of the condition ``Scheduled`` that shows the decision in its spec."""
    place = f"vGPU {', '.join(gpuids(sharepod))} on node {sharepod.spec.node_name}"
    if sharepod.spec.gpu.attempt:
        return Reason.BOUND, place
    return Reason.GIVEN, f"given by its author: {place}"


def original_demand(gpu: GPUSpec, demand: Demand) -> Demand:
    """The demand of its author, without the decision that Sched has written into it."""
    if not demand.attempt:
        return demand
    return msgspec.structs.replace(
        demand,
        device_id=demand.device_id if gpu.id_given else "",
        device_nodes=demand.device_nodes if gpu.id_given and gpu.node_given else None,
        nodes=demand.nodes if gpu.node_given else None,
    )


def input_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether anything but the status changed."""
    return _input(old) != _input(new)


def share_status(demand: Demand) -> dict[str, str]:
    """The share of each GPU for ``status.share``; see :class:`kubeshare.api.types.v1.Share`.

    Of several different shares it is the sum.
    """
    shares = demand.per_gpu() if demand.shares else (demand,)
    # Either micros or bytes is given for each.
    size = sum(share.memory.bytes or 0 for share in shares)
    fraction = sum(share.memory.micros or 0 for share in shares)
    memory = [format_memory(size)] if size else []
    memory += [format_share(fraction)] if fraction or not size else []
    return {
        "request": format_share(sum(share.request_micros for share in shares)),
        "limit": format_share(sum(share.limit_micros for share in shares)),
        "memory": "+".join(memory),
    }


def can_reschedule(sharepod: SharePod) -> bool:
    """Whether Sched chose its node, and may choose another one."""
    return sharepod.spec.gpu.attempt > 0 and not sharepod.spec.gpu.node_given


def finished(sharepod: SharePod) -> bool:
    """Whether its pod has ended; no other pod is created."""
    return sharepod.status.phase in TERMINAL_PHASES


def is_deleting(sharepod: SharePod) -> bool:
    """Whether it has a deletion timestamp."""
    return sharepod.metadata.deletion_timestamp is not None


def _gpuids(ids: Sequence[str], one: str, annotations: Mapping[str, str]) -> tuple[str, ...]:
    given = one or annotations.get(ANNOTATIONS["id"], "")
    return tuple(sorted(ids)) or ((given,) if given else ())


def _input(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _BOOKKEEPING}
    return metadata, raw.get("spec")
