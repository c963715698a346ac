"""Proposes which holders could leave a node for several different shares."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations
from math import comb
from typing import Final, TypeAlias

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave
from kubeshare.core.diagnosis.cover import Holders
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import Holder

Choose: TypeAlias = Callable[[Device, Demand], Holders | None]
"""Returns holders that could leave a device so that it admits a demand; None if none help."""

_MAX_SETS: Final = 3000


def proposals(
    usable: Iterable[Device], demand: Demand, may_leave: MayLeave, choices: Sequence[Choose]
) -> Iterator[Holders]:
    """Holders that could leave a node, for each node.

    These are the ones that would have to leave a GPU for each share, all sets of few demands,
    and all holders.
    """
    on_node: dict[str, list[Device]] = defaultdict(list)
    for device in usable:
        on_node[device.node].append(device)
    for devices in on_node.values():
        for choose in choices:
            found = _one_gpu_each(devices, demand, choose)
            if found is not None:
                yield found
        yield from _few_demands(devices, demand, may_leave)


def _one_gpu_each(devices: Sequence[Device], demand: Demand, choose: Choose) -> Holders | None:
    """The holders that leave the GPUs with the fewest to leave, a GPU for each share."""
    rest, leaving = list(devices), []
    for wanted in demand.reduced():
        lists = [(holders, each) for each in rest if (holders := choose(each, wanted)) is not None]
        lists.sort(key=lambda found: (len(found[0]), found[1].order))
        if len(lists) < wanted.count:
            return None
        for holders, device in lists[: wanted.count]:
            leaving.append(holders)
            rest.remove(device)
    return tuple(chain.from_iterable(leaving))


def _few_demands(
    devices: Sequence[Device], demand: Demand, may_leave: MayLeave
) -> Iterator[Holders]:
    """Sets of the demands on these GPUs that free enough compute, the small ones, and all."""
    by_demand: dict[str, list[Holder]] = defaultdict(list)
    for holder in chain.from_iterable(device.holders for device in devices):
        if may_leave(holder):
            by_demand[holder.demand].append(holder)
    missing = sum(share.request_micros for share in demand.per_gpu())
    missing -= sum(device.compute_left for device in devices)
    for size in range(1, len(by_demand)):
        if comb(len(by_demand), size) > _MAX_SETS:
            break
        for uids in combinations(sorted(by_demand), size):
            holders = tuple(chain.from_iterable(by_demand[uid] for uid in uids))
            if sum(holder.request_micros for holder in holders) >= missing:
                yield holders
    yield tuple(chain.from_iterable(by_demand.values()))
