"""The fewest holders that must leave one GPU to admit a demand."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kubeshare.core.constraints.checks import conflicts, is_compatible
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.cover import Holders, fewest_that_cover
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder

MayLeave: TypeAlias = Callable[[Holder], bool]


def fewest_that_admit(
    device: Device, demand: Demand, may_leave: MayLeave, most: int, keeper: Holder | None = None
) -> Holders | None:
    """The fewest holders that must leave so that a GPU's room and labels admit a demand.

    Args:
        device: the GPU.
        demand: the demand to admit.
        may_leave: which holders may leave.
        most: how many may leave.
        keeper: a holder that must stay.

    Returns:
        None if no such set exists.
    """
    if keeper and conflicts(keeper, demand):
        return None
    compute = demand.compute_on(device.memory_bytes) - device.compute_left
    memory = demand.memory.on(device.memory_bytes) - device.memory_left
    entries = len(device.holders) - MAX_HOLDERS + 1
    rest: Sequence[Holder] = device.holders
    must: Holders = ()
    if not is_compatible(device, demand):
        must = tuple([holder for holder in device.holders if conflicts(holder, demand)])
        rest = [holder for holder in device.holders if not conflicts(holder, demand)]
        compute -= sum([holder.request_micros for holder in must])
        memory -= sum([holder.memory_bytes for holder in must])
        entries -= len(must)
    if not all(map(may_leave, must)):
        return None
    rest = [holder for holder in rest if holder is not keeper and may_leave(holder)]
    more = fewest_that_cover(rest, compute, memory, entries, most - len(must))
    return None if more is None else must + more
