"""The smallest change that would let a pending demand fit.

The reasons of a decision say why each GPU was passed over. This module finds the fewest holders
that would have to leave, and if leaving does not help, a GPU that would have to be repaired or
released.

Candidates come from each GPU: the holders that must leave so that its room and labels admit the
demand, or so that it is idle. Each candidate, the smallest first, is tried on the ledger: its
holders are released, and the policy decides again. So an answer is correct for any policy, and
for the built-in policies it is also minimal.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from heapq import nsmallest
from itertools import chain, combinations
from math import comb
from typing import Final

import msgspec

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave, fewest_that_admit
from kubeshare.core.diagnosis.cover import Holders
from kubeshare.core.diagnosis.hidden_gpuids import readable_paths
from kubeshare.core.diagnosis.repairs import repairs
from kubeshare.core.diagnosis.several_shares import proposals
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder
from kubeshare.core.ledger.index.gpuids import is_named
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy

TRIES: Final = 256
"""The most candidates that are tried, to bound the time of an explanation."""

_ALL: Final = MAX_HOLDERS + 1
_MAX_SETS: Final = 3000


_STRANGER: Final = "a demand of another namespace"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that lets a demand fit.

    Attributes:
        leave: the uids of the demands that would have to leave, sorted.
        words: each step as a clause: ``q leaves n1/A``.
    """

    leave: tuple[str, ...] = ()
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"it fits when {', and '.join(self.words)}"


def _any(_: Holder) -> bool:
    return True


def shortest_change(
    policy: Policy, ledger: Ledger, demand: Demand, reader: Demand | None = None
) -> Change | None:
    """The smallest change that lets a pending demand fit; None if none was found.

    Args:
        policy: decides whether the demand fits.
        ledger: unchanged afterwards.
        demand: the pending demand.
        reader: who reads the clauses, as for :func:`leave_clauses`.
    """
    leaving = fewest_leaving(policy, ledger, demand)
    if leaving is not None:
        words = leave_clauses(ledger, leaving.leave, reader)
        return msgspec.structs.replace(leaving, words=words)
    found = repairs(policy, ledger, demand, reader)
    return next((Change(words=(repair,)) for repair in found), None)


def fewest_leaving(
    policy: Policy, ledger: Ledger, demand: Demand, may_leave: MayLeave = _any
) -> Change | None:
    """The fewest demands that must leave to let a pending demand fit; None if none were found.

    Args:
        policy: decides whether the demand fits.
        ledger: unchanged afterwards.
        demand: the pending demand.
        may_leave: which holders may leave.
    """
    demand = ledger.comparable(demand)
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


def leave_clauses(
    ledger: Ledger, leavers: Iterable[str], reader: Demand | None = None
) -> tuple[str, ...]:
    """A clause for each demand that leaves, in the order of the GPUs.

    Args:
        ledger: the cluster.
        leavers: the uids of the demands.
        reader: the demand whose author reads the clauses: demands of other namespaces, and the
            GPUIDs that they chose, are not named; None for a reader who may see all.
    """
    places = []
    for uid in leavers:
        devices = [ledger.devices[device_id] for device_id in ledger.held_by(uid)]
        paths = sorted((device.path for device in devices), key=natural)
        shown = ", ".join(paths if reader is None else readable_paths(devices, reader))
        holder = next(
            holder for device in devices for holder in device.holders if holder.demand == uid
        )
        known = reader is None or reader.namespace == holder.namespace
        name = holder.name if known else _STRANGER
        places.append((natural(paths[0]), natural(name), uid, shown, name))
    return tuple(f"{name or 'who holds it'} leaves {shown}" for *_, shown, name in sorted(places))


def _candidates(
    ledger: Ledger, demand: Demand, may_leave: MayLeave, *, thoroughly: bool
) -> Iterator[frozenset[str]]:
    """Candidate sets of demands to release, each once, the fewest and smallest first.

    Args:
        ledger: the cluster.
        demand: the pending demand.
        may_leave: which holders may leave.
        thoroughly: whether to try more than the smallest sets, which mostly suffice.
    """
    found: dict[frozenset[str], int] = {}
    proposals = [*_proposed(ledger, demand, may_leave, thoroughly=thoroughly)]
    for leavers in chain(
        proposals, _without_label(ledger, demand, may_leave, thoroughly=thoroughly)
    ):
        uids = frozenset([holder.demand for holder in leavers])
        if uids:
            found[uids] = sum([holder.request_micros for holder in leavers])
    if not thoroughly:
        shortest = min(map(len, found), default=0)
        found = {uids: request for uids, request in found.items() if len(uids) == shortest}
    yield from nsmallest(TRIES, found, key=lambda uids: (len(uids), found[uids], sorted(uids)))


def _proposed(
    ledger: Ledger, demand: Demand, may_leave: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    usable = [device for device in ledger.devices.values() if _usable(ledger, device, demand)]
    if demand.shares:
        choices = [partial(_fewest_of_all, may_leave=may_leave)]
        choices.append(partial(_all_holders, may_leave=may_leave))
        return proposals(usable, demand, may_leave, choices)
    if demand.count == 1:
        return _for_one(usable, demand, may_leave, thoroughly=thoroughly)
    return _for_several(ledger, usable, demand, may_leave)


def _usable(ledger: Ledger, device: Device, demand: Demand) -> bool:
    """Whether the device could fit the demand when empty."""
    return (
        device.healthy
        and not device.fenced
        and device.node in ledger.nodes
        and (demand.nodes is None or device.node in demand.nodes)
        and (not demand.device_id or is_named(device, demand))
        and demand.model in ("", device.model)
        and demand.memory.on(device.memory_bytes) <= device.memory_bytes
    )


def _for_one(
    usable: Iterable[Device], demand: Demand, may_leave: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    """The holders that must leave one GPU so that it admits the demand, or is idle."""
    shortest = _ALL
    for device in usable:
        for fewest in _lists(device, demand, may_leave, _ALL if thoroughly else shortest):
            shortest = min(shortest, len(fewest) or _ALL)
            yield fewest
        if (thoroughly or len(device.holders) <= shortest) and all(map(may_leave, device.holders)):
            yield device.holders


def _for_several(
    ledger: Ledger, usable: Iterable[Device], demand: Demand, may_leave: MayLeave
) -> Iterator[Holders]:
    """The holders that must leave enough GPUs of one node and model, for each of those."""
    alike: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in usable:
        alike[device.node, device.model].append(device)
    for (node, model), devices in alike.items():
        free = [gpu for gpu in ledger.nodes[node].free if gpu.model == model]
        suitable = [gpu for gpu in free if not reasons.no_free_gpu((gpu,), demand)]
        for opened in {0, min(len(suitable), demand.count)}:
            missing = demand.count - opened
            for choose in (_fewest_of_all, _all_holders):
                each = (choose(device, demand, may_leave) for device in devices)
                lists = sorted((holders for holders in each if holders is not None), key=_size)
                if len(lists) >= missing:
                    shortest = tuple(chain.from_iterable(lists[:missing]))
                    yield shortest
                    yield from _shorter(devices, demand, may_leave, missing, shortest)


def _shorter(
    devices: Sequence[Device], demand: Demand, may_leave: MayLeave, missing: int, found: Holders
) -> Iterator[Holders]:
    """Smaller sets than the one found GPU by GPU, since a demand may hold several GPUs."""
    by_demand: dict[str, list[Holder]] = defaultdict(list)
    for device in devices:
        for holder in filter(may_leave, device.holders):
            by_demand[holder.demand].append(holder)
    if not any(len(held) > 1 for held in by_demand.values()):
        return
    for size in range(1, len({holder.demand for holder in found})):
        if comb(len(by_demand), size) > _MAX_SETS:
            return
        for uids in combinations(sorted(by_demand), size):
            if sum(_admits_without(device, demand, uids) for device in devices) >= missing:
                yield tuple(chain.from_iterable(by_demand[uid] for uid in uids))


def _admits_without(device: Device, demand: Demand, uids: Container[str]) -> bool:
    rest = tuple(holder for holder in device.holders if holder.demand not in uids)
    left = msgspec.structs.replace(device, holders=rest)
    return fewest_that_admit(left, demand, _any, 0) is not None


def _without_label(
    ledger: Ledger, demand: Demand, may_leave: MayLeave, *, thoroughly: bool
) -> Iterator[Holders]:
    """All holders of the affinity label: once none is left, the demand may use another GPU."""
    label = demand.affinity
    carriers = tuple(
        holder
        for device in ledger.devices.values()
        for holder in device.holders
        if label and holder.affinity == label
    )
    if not carriers or not all(map(may_leave, carriers)):
        return
    yield carriers
    with ledger.what_if():
        for uid in {holder.demand for holder in carriers}:
            ledger.release(uid)
        besides = list(_proposed(ledger, demand, may_leave, thoroughly=thoroughly))
    for others in besides:
        yield carriers + others


def _all_holders(device: Device, _: Demand, may_leave: MayLeave) -> Holders | None:
    return device.holders if all(map(may_leave, device.holders)) else None


def _fewest_of_all(device: Device, demand: Demand, may_leave: MayLeave) -> Holders | None:
    lists = _lists(device, demand, may_leave, _ALL)
    return min(lists, key=_size, default=_all_holders(device, demand, may_leave))


def _size(holders: Holders) -> tuple[int, int, list[str]]:
    request = sum(holder.request_micros for holder in holders)
    return len(holders), request, [holder.demand for holder in holders]


def _lists(device: Device, demand: Demand, may_leave: MayLeave, most: int) -> Iterator[Holders]:
    """The fewest holders that must leave a GPU; one holder of the affinity label must stay."""
    label = demand.affinity
    keepers = [holder for holder in device.holders if label and holder.affinity == label]
    for keeper in keepers or (None,):
        fewest = fewest_that_admit(device, demand, may_leave, most, keeper)
        if fewest is not None:
            yield fewest
