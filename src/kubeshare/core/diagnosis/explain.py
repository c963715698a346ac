"""What would have to change so that a demand that waits could be placed: the shortest list.

Why each GPU and node was passed over is in a decision's reasons. Here the question is
turned round: whose leaving would let the demand in, and if nobody's would, which GPU
would have to be repaired or come free.

Candidates are found by looking at GPUs one by one: who has to leave this one so that its
room and labels admit the demand, or so that it is idle. Each candidate, the shortest
first, is then tried on the ledger itself: those who are in it leave, and the policy is
asked. So an answer is never wrong, whatever the policy is, and for the built-in policies
no shorter one is overlooked.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, combinations
from math import comb
from typing import Final

import msgspec

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave, fewest_that_admit
from kubeshare.core.diagnosis.cover import Holders
from kubeshare.core.diagnosis.repairs import repairs
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy

TRIES: Final = 256
"""How many candidates are tried at most, so that an explanation takes a bounded time."""

_ALL: Final = MAX_HOLDERS + 1
_MOST_SETS: Final = 3000


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What would let a demand in.

    Attributes:
        leave: the uids of the demands that would have to leave, sorted.
        words: what would have to happen, each as a clause: ``q leaves n1/A``.
    """

    leave: tuple[str, ...] = ()
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"it fits when {', and '.join(self.words)}"


def _anybody(_: Holder) -> bool:
    return True


def shortest_change(policy: Policy, ledger: Ledger, demand: Demand) -> Change | None:
    """The shortest list of changes after which a demand would be placed.

    Args:
        policy: says whether it would be.
        ledger: as it is now; it is the same afterwards.
        demand: one that waits.

    Returns:
        None where no such list was found.
    """
    leaving = fewest_leaving(policy, ledger, demand)
    if leaving is not None:
        return leaving
    return next((Change(words=(repair,)) for repair in repairs(policy, ledger, demand)), None)


def fewest_leaving(
    policy: Policy, ledger: Ledger, demand: Demand, may_leave: MayLeave = _anybody
) -> Change | None:
    """The fewest demands that would have to leave so that another would be placed.

    Args:
        policy: says whether it would be.
        ledger: as it is now; it is the same afterwards.
        demand: one that waits.
        may_leave: of whom it may be asked.

    Returns:
        None where no such list was found.
    """
    for thoroughly in (False, True):
        for leavers in _candidates(ledger, demand, may_leave, thoroughly=thoroughly):
            with ledger.what_if():
                for uid in leavers:
                    ledger.release(uid)
                fits = policy(ledger, demand).outcome == "bound"
            if fits:
                leave = tuple(sorted(leavers))
                return Change(leave=leave, words=leave_clauses(ledger, leavers))
    return None


def leave_clauses(ledger: Ledger, leavers: Iterable[str]) -> tuple[str, ...]:
    """A clause for each who leaves, in the order of the GPUs that they leave."""
    places = []
    for uid in leavers:
        devices = [ledger.devices[device_id] for device_id in ledger.held_by(uid)]
        paths = sorted((device.path for device in devices), key=natural)
        name = next(
            holder.name for device in devices for holder in device.holders if holder.demand == uid
        )
        places.append((natural(paths[0]), natural(name), uid, ", ".join(paths), name))
    return tuple(f"{name or 'who holds it'} leaves {paths}" for *_, paths, name in sorted(places))


def _candidates(
    ledger: Ledger, demand: Demand, may: MayLeave, *, thoroughly: bool
) -> Iterator[frozenset[str]]:
    """Sets of demands whose leaving may help, each once, the shortest and smallest first.

    Args:
        ledger: the cluster.
        demand: is to be let in.
        may: who may leave.
        thoroughly: not only the shortest, which mostly will do.
    """
    found: dict[frozenset[str], int] = {}
    proposals = [*_proposed(ledger, demand, may, thoroughly=thoroughly)]
    for leavers in chain(proposals, _without_label(ledger, demand, may, thoroughly=thoroughly)):
        uids = frozenset([holder.demand for holder in leavers])
        if uids:
            found[uids] = sum([holder.request_micros for holder in leavers])
    if not thoroughly:
        shortest = min(map(len, found), default=0)
        found = {uids: request for uids, request in found.items() if len(uids) == shortest}
    yield from nsmallest(TRIES, found, key=lambda uids: (len(uids), found[uids], sorted(uids)))


def _proposed(
    ledger: Ledger, demand: Demand, may: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    usable = [device for device in ledger.devices.values() if _usable(ledger, device, demand)]
    if demand.count == 1:
        return _for_one(usable, demand, may, thoroughly=thoroughly)
    return _for_several(ledger, usable, demand, may)


def _usable(ledger: Ledger, device: Device, demand: Demand) -> bool:
    """The device could take the demand if nobody held any of it."""
    return (
        device.healthy
        and not device.fenced
        and device.node in ledger.nodes
        and (demand.nodes is None or device.node in demand.nodes)
        and demand.device_id in ("", device.id)
        and demand.model in ("", device.model)
        and demand.memory.on(device.memory_bytes) <= device.memory_bytes
    )


def _for_one(
    usable: Iterable[Device], demand: Demand, may: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    """Who would have to leave one GPU, so that it admits the demand or so that it is idle."""
    shortest = _ALL
    for device in usable:
        for fewest in _lists(device, demand, may, _ALL if thoroughly else shortest):
            shortest = min(shortest, len(fewest) or _ALL)
            yield fewest
        if (thoroughly or len(device.holders) <= shortest) and all(map(may, device.holders)):
            yield device.holders


def _for_several(
    ledger: Ledger, usable: Iterable[Device], demand: Demand, may: MayLeave
) -> Iterator[Holders]:
    """Who would have to leave enough GPUs of one node and model, for each of those."""
    alike: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in usable:
        alike[device.node, device.model].append(device)
    for (node, model), devices in alike.items():
        free = [gpu for gpu in ledger.nodes[node].free if gpu.model == model]
        would_do = [gpu for gpu in free if not reasons.no_free_gpu((gpu,), demand)]
        for opened in {0, min(len(would_do), demand.count)}:
            missing = demand.count - opened
            for who in (_fewest_of_all, _everybody):
                each = (who(device, demand, may) for device in devices)
                lists = sorted((holders for holders in each if holders is not None), key=_size)
                if len(lists) >= missing:
                    shortest = tuple(chain.from_iterable(lists[:missing]))
                    yield shortest
                    yield from _shorter(devices, demand, may, missing, shortest)


def _shorter(
    devices: Sequence[Device], demand: Demand, may: MayLeave, missing: int, found: Holders
) -> Iterator[Holders]:
    """Shorter lists than the one found GPU by GPU: somebody may have parts of several."""
    parts: dict[str, list[Holder]] = defaultdict(list)
    for device in devices:
        for holder in filter(may, device.holders):
            parts[holder.demand].append(holder)
    if not any(len(held) > 1 for held in parts.values()):
        return
    for size in range(1, len({holder.demand for holder in found})):
        if comb(len(parts), size) > _MOST_SETS:
            return
        for uids in combinations(sorted(parts), size):
            if sum(_admits_without(device, demand, uids) for device in devices) >= missing:
                yield tuple(chain.from_iterable(parts[uid] for uid in uids))


def _admits_without(device: Device, demand: Demand, uids: Container[str]) -> bool:
    rest = tuple(holder for holder in device.holders if holder.demand not in uids)
    left = msgspec.structs.replace(device, holders=rest)
    return fewest_that_admit(left, demand, _anybody, 0) is not None


def _without_label(
    ledger: Ledger, demand: Demand, may: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    """Who carries the affinity label: once nobody does, the demand may go elsewhere."""
    label = demand.affinity
    carriers = tuple(
        holder
        for device in ledger.devices.values()
        for holder in device.holders
        if label and holder.affinity == label
    )
    if not carriers or not all(map(may, carriers)):
        return
    yield carriers
    with ledger.what_if():
        for uid in {holder.demand for holder in carriers}:
            ledger.release(uid)
        besides = list(_proposed(ledger, demand, may, thoroughly=thoroughly))
    for others in besides:
        yield carriers + others


def _everybody(device: Device, _: Demand, may: MayLeave) -> Holders | None:
    return device.holders if all(map(may, device.holders)) else None


def _fewest_of_all(device: Device, demand: Demand, may: MayLeave) -> Holders | None:
    lists = _lists(device, demand, may, _ALL)
    return min(lists, key=_size, default=_everybody(device, demand, may))


def _size(holders: Holders) -> tuple[int, int, list[str]]:
    request = sum(holder.request_micros for holder in holders)
    return len(holders), request, [holder.demand for holder in holders]


def _lists(device: Device, demand: Demand, may: MayLeave, most: int) -> Iterator[Holders]:
    """The fewest who would have to leave a GPU; where the label draws it there, one keeps it."""
    label = demand.affinity
    keepers = [holder for holder in device.holders if label and holder.affinity == label]
    for keeper in keepers or (None,):
        fewest = fewest_that_admit(device, demand, may, most, keeper)
        if fewest is not None:
            yield fewest
