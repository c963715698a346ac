"""What controllers ask of a SharePod, whichever way it was written.

A SharePod is kept as it came (a raw object), since its spec becomes a pod's; the
narrow struct of it is a view.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.v1 import GPUSpec, SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.units import format_memory, format_share
from kubeshare.dialects.share_fields import ANNOTATIONS

_BOOKKEEPING: Final = frozenset({"resourceVersion", "managedFields"})
"""Of an object's metadata, what changes with each write and says nothing."""


def view(raw: Mapping[str, Any]) -> SharePod:
    """The narrow struct of a raw SharePod."""
    return msgspec.convert(raw, SharePod)


def gpuids(sharepod: SharePod) -> tuple[str, ...]:
    """The GPUs that it is to have, in the order in which they are taken; empty before that."""
    ask = sharepod.spec.gpu
    return _gpuids(ask.ids, ask.id, sharepod.metadata.annotations)


def gpuids_of(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a raw SharePod, for an index: asked at each change of each of them."""
    ask = (raw.get("spec") or {}).get("gpu") or {}
    annotations = raw["metadata"].get("annotations") or {}
    return _gpuids(ask.get("ids") or (), ask.get("id") or "", annotations)


def decided(sharepod: SharePod) -> bool:
    """Its GPUs and its node are known: Sched has nothing to decide (any more)."""
    return bool(gpuids(sharepod) and sharepod.spec.node_name)


def original_demand(ask: GPUSpec, demand: Demand) -> Demand:
    """What its author asked for, without what Sched has written into it."""
    if not demand.attempt:
        return demand
    return msgspec.structs.replace(
        demand,
        device_id=demand.device_id if ask.id_given else "",
        nodes=demand.nodes if ask.node_given else None,
    )


def input_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Something is new of a SharePod that is no controller's word in its status."""
    return _asked_for(old) != _asked_for(new)


def share_status(demand: Demand) -> dict[str, str]:
    """What a demand asks of a GPU, for the status (see :class:`kubeshare.api.types.v1.Share`)."""
    asked = demand.memory
    # One of the two is given.
    fraction = format_share(asked.micros or 0)
    return {
        "request": format_share(demand.request_micros),
        "limit": format_share(demand.limit_micros),
        "memory": fraction if asked.bytes is None else format_memory(asked.bytes),
    }


def can_reschedule(sharepod: SharePod) -> bool:
    """Sched has chosen its node, and may choose another one."""
    return sharepod.spec.gpu.attempt > 0 and not sharepod.spec.gpu.node_given


def finished(sharepod: SharePod) -> bool:
    """Its pod has ended for good, and is not made again."""
    return sharepod.status.phase in TERMINAL_PHASES


def is_deleting(sharepod: SharePod) -> bool:
    """Somebody has deleted it."""
    return sharepod.metadata.deletion_timestamp is not None


def _gpuids(ids: Sequence[str], one: str, annotations: Mapping[str, str]) -> tuple[str, ...]:
    given = one or annotations.get(ANNOTATIONS["id"], "")
    return tuple(sorted(ids)) or ((given,) if given else ())


def _asked_for(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _BOOKKEEPING}
    return metadata, raw.get("spec")
