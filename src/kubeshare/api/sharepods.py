"""What controllers ask of a SharePod, whichever way it was written.

A SharePod is kept as it came (a raw object), since its spec becomes a pod's; the
narrow struct of it is a view.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshare.api.cluster import TERMINAL_PHASES
from kubeshare.api.v1 import SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.units import format_memory, format_share
from kubeshare.dialects.spellings import ANNOTATIONS


def view(raw: Mapping[str, Any]) -> SharePod:
    """The narrow struct of a raw SharePod."""
    return msgspec.convert(raw, SharePod)


def gpuids(sharepod: SharePod) -> tuple[str, ...]:
    """The GPUs that it is to have, in the order in which they are taken; empty before that."""
    ask = sharepod.spec.gpu
    given = ask.id or sharepod.metadata.annotations.get(ANNOTATIONS["id"], "")
    return tuple(sorted(ask.ids)) or ((given,) if given else ())


def decided(sharepod: SharePod) -> bool:
    """Its GPUs and its node are known: Sched has nothing to decide (any more)."""
    return bool(gpuids(sharepod) and sharepod.spec.node_name)


def share(demand: Demand) -> dict[str, str]:
    """What a demand asks of a GPU, for the status (see :class:`kubeshare.api.v1.Share`)."""
    asked = demand.memory
    # One of the two is given.
    fraction = format_share(asked.micros or 0)
    return {
        "request": format_share(demand.request),
        "limit": format_share(demand.limit),
        "memory": fraction if asked.bytes is None else format_memory(asked.bytes),
    }


def may_move(sharepod: SharePod) -> bool:
    """Sched has chosen its node, and may choose another one."""
    return sharepod.spec.gpu.attempt > 0 and not sharepod.spec.gpu.node_given


def finished(sharepod: SharePod) -> bool:
    """Its pod has ended for good, and is not made again."""
    return sharepod.status.phase in TERMINAL_PHASES


def going(sharepod: SharePod) -> bool:
    """Somebody has deleted it."""
    return sharepod.metadata.deletion_timestamp is not None
