"""Preemption: the cheapest set of holders to evict for a demand.

Only holders that allow it may be preempted, and only for a demand of higher priority. Of the
sets that suffice, the cheapest is the one whose highest priority is lowest; then the one with
the fewest holders; then one that holds little of the GPUs.
:mod:`kubeshare.core.diagnosis.explain` finds the holders that are in the way; this module only
restricts which holders it may consider.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave
from kubeshare.core.diagnosis.explain import Change, fewest_leaving, leave_clauses
from kubeshare.core.gang import Nearness, fitting_scopes, place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

SCOPES: Final = 8
"""The places that are compared for a gang whose members have to be near each other."""


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """The holders to evict.

    Attributes:
        leave: the uids of the demands to evict, sorted.
        priority: the highest of their priorities.
        words: each eviction as a clause for the author of the demand: ``q leaves n1/A``.
    """

    leave: tuple[str, ...]
    priority: int
    words: tuple[str, ...]


def cheapest_preemption(
    policy: Policy,
    ledger: Ledger,
    demand: Demand,
    *,
    priority: int,
    preemptible: Mapping[str, int],
) -> Preemption | None:
    """The cheapest set of holders whose eviction lets a pending demand fit.

    Args:
        policy: decides whether the demand fits.
        ledger: unchanged afterwards.
        demand: the pending demand.
        priority: the priority of the demand.
        preemptible: uid of each demand that may be preempted → its priority. Only those below
            the demand's own priority are considered.

    Returns:
        None if no such set was found.
    """
    lower = {uid: value for uid, value in preemptible.items() if value < priority}
    for level in sorted(set(lower.values())):
        may_leave = _one_of({uid for uid, value in lower.items() if value <= level})
        change = fewest_leaving(policy, ledger, demand, may_leave)
        if change is not None:
            highest = max(lower[uid] for uid in change.leave)
            words = leave_clauses(ledger, change.leave, demand)
            return Preemption(leave=change.leave, priority=highest, words=words)
    return None


def cheapest_for_gang(  # noqa: PLR0913 - all are inputs of one question
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
    near: Nearness | None = None,
) -> Preemption | None:
    """Holders whose eviction lets enough members of a gang fit.

    Each member in turn gets the cheapest set that lets it fit beside those before it. Then
    holders that need not leave are taken out again, those of the highest priority first: without
    any one of the rest the gang would not start. If the members have to be near each other, this
    is done in each of some places where they would fit without the holders, and the cheapest set
    is taken.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged afterwards.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        priority: the priority of the gang.
        preemptible: as in :func:`cheapest_preemption`.
        near: how near each other the members must be.

    Returns:
        None if no such set was found.
    """
    cheapest = partial(_cheapest_anywhere, priority=priority, preemptible=preemptible)
    if near is None or not near.binds:
        return cheapest(policy, ledger, members, needed)
    lower = [uid for uid, value in preemptible.items() if value < priority]
    if not lower:
        return None
    with ledger.what_if():
        for uid in filter(ledger.held_by, lower):
            ledger.release(uid)
        found = list(islice(fitting_scopes(policy, ledger, members, needed, near), SCOPES))
    sets: list[Preemption] = []
    for scope in found:
        with ledger.what_if():
            scope.confine(ledger)
            chosen = cheapest(policy, ledger, [scope.narrow(each) for each in members], needed)
        sets += [chosen] if chosen else []
    return min(sets, key=lambda each: (each.priority, len(each.leave), each.leave), default=None)


def _cheapest_anywhere(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    *,
    priority: int,
    preemptible: Mapping[str, int],
) -> Preemption | None:
    """The same, wherever the policy places the members."""
    preempt_for = partial(
        cheapest_preemption, policy, ledger, priority=priority, preemptible=preemptible
    )
    leavers = _preempt_one_by_one(policy, ledger, members, needed, preempt_for)
    for uid in sorted(leavers, key=lambda uid: (-preemptible[uid], uid)):
        if _fits_without(policy, ledger, members, needed, leavers - {uid}):
            leavers.discard(uid)
    if not leavers:
        return None
    return Preemption(
        leave=tuple(sorted(leavers)),
        priority=max(preemptible[uid] for uid in leavers),
        words=leave_clauses(ledger, leavers, members[0]),
    )


def _preempt_one_by_one(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    preempt_for: Callable[[Demand], Preemption | None],
) -> set[str]:
    """The holders evicted for one member after another; none if too few members fit."""
    leavers: set[str] = set()
    placed = 0
    with ledger.what_if():
        for demand in members:
            decision = policy(ledger, demand)
            if decision.outcome != "bound":
                found = preempt_for(demand)
                if found is None:
                    continue
                leavers.update(found.leave)
                for uid in found.leave:
                    ledger.release(uid)
                decision = policy(ledger, demand)
            commit(ledger, demand, decision)
            placed += 1
            if placed == needed:
                return leavers
    return set()


def change_for_gang(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    stay: Container[str] = (),
    near: Nearness | None = None,
) -> Change | None:
    """Holders, of whatever priority, without which enough members of a gang would fit.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged afterwards.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        stay: the uids of demands that must stay, such as the gang's own.
        near: how near each other the members must be.

    Returns:
        None if no such set was found.
    """
    holders = {holder.demand for device in ledger.devices.values() for holder in device.holders}
    mates = near.mates if near else ()
    others = dict.fromkeys((uid for uid in holders if uid not in stay and uid not in mates), 0)
    found = cheapest_for_gang(
        policy, ledger, members, needed=needed, priority=1, preemptible=others, near=near
    )
    if found is None:
        return None
    return Change(leave=found.leave, words=leave_clauses(ledger, found.leave))


def _one_of(uids: Container[str]) -> MayLeave:
    return lambda holder: holder.demand in uids


def _fits_without(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int, leavers: set[str]
) -> bool:
    with ledger.what_if():
        for uid in leavers:
            ledger.release(uid)
        return place_gang(policy, ledger, members, needed).whole
