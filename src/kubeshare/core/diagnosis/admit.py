"""Who would have to leave one GPU so that its room and labels admit a demand."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.cover import Holders, fewest_that_cover
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder

MayLeave: TypeAlias = Callable[[Holder], bool]


def fewest_that_admit(
    device: Device, demand: Demand, may: MayLeave, most: int, keeper: Holder | None = None
) -> Holders | None:
    """The fewest holders whose leaving makes a GPU's room and labels admit a demand.

    Args:
        device: the GPU.
        demand: is to be admitted.
        may: who may leave.
        most: how many may leave.
        keeper: has to stay.

    Returns:
        None when that cannot be.
    """
    if keeper and _repels(keeper, demand):
        return None
    compute = demand.compute_on(device.memory_bytes) - device.compute_left
    memory = demand.memory.on(device.memory_bytes) - device.memory_left
    entries = len(device.holders) - MAX_HOLDERS + 1
    must: Holders = ()
    rest: Sequence[Holder] = device.holders
    if not _agrees(device, demand):
        must = tuple([holder for holder in device.holders if _repels(holder, demand)])
        rest = [holder for holder in device.holders if not _repels(holder, demand)]
        compute -= sum([holder.request_micros for holder in must])
        memory -= sum([holder.memory_bytes for holder in must])
        entries -= len(must)
    if not all(map(may, must)):
        return None
    rest = [holder for holder in rest if holder is not keeper and may(holder)]
    more = fewest_that_cover(rest, compute, memory, entries, most - len(must))
    return None if more is None else must + more


def _agrees(device: Device, demand: Demand) -> bool:
    """No holder repels the demand."""
    return device.exclusions <= {demand.exclusion} and not (
        demand.anti_affinity and demand.anti_affinity in device.anti_affinities
    )


def _repels(holder: Holder, demand: Demand) -> bool:
    """Beside this holder the demand cannot be."""
    anti_affinity = demand.anti_affinity
    if anti_affinity and holder.anti_affinity == anti_affinity:
        return True
    return holder.exclusion != demand.exclusion
