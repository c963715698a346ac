"""Who would have to make room for a demand of higher priority: the cheapest set of holders.

Only holders that say so may be preempted, and only for a demand of higher priority than
theirs. Of the sets that would do, the cheapest is the one whose highest priority is
lowest; of those the one with the fewest holders; of those one that holds little of the
GPUs. Which holders stand in a demand's way is :mod:`kubeshare.core.diagnosis.explain`'s to say;
here it is only told whom it may ask to leave.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

import msgspec

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave
from kubeshare.core.diagnosis.explain import Change, fewest_leaving, leave_clauses
from kubeshare.core.gang import place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes room.

    Attributes:
        leave: the uids of the demands that leave, sorted.
        priority: the highest of theirs.
        words: what happens, each as a clause: ``q leaves n1/A``.
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
    """The cheapest set of holders whose leaving lets a demand in.

    Args:
        policy: says whether it would be placed.
        ledger: as it is now; it is the same afterwards.
        demand: one that waits.
        priority: the demand's.
        preemptible: uid of each demand that may be preempted → its priority. Those that
            are not below the demand's own are left in peace.

    Returns:
        None where no such set was found.
    """
    lower = {uid: value for uid, value in preemptible.items() if value < priority}
    for level in sorted(set(lower.values())):
        may_leave = _one_of({uid for uid, value in lower.items() if value <= level})
        change = fewest_leaving(policy, ledger, demand, may_leave)
        if change is not None:
            highest = max(lower[uid] for uid in change.leave)
            return Preemption(leave=change.leave, priority=highest, words=change.words)
    return None


def cheapest_for_gang(  # noqa: PLR0913 - the question
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
) -> Preemption | None:
    """Holders whose leaving lets in as many members of a gang as are needed.

    Member after member gets the cheapest set that lets it in beside those before it. Then
    whoever left in vain stays, those of the highest priority first: without any one of the
    rest the gang would not start.

    Args:
        policy: says whether a member would be placed.
        ledger: as it is now; it is the same afterwards.
        members: those that have no room yet, and would not fit as it is.
        needed: how many of them have to fit.
        priority: of the gang.
        preemptible: as in :func:`cheapest_preemption`.

    Returns:
        None where no such set was found.
    """
    let_in = partial(
        cheapest_preemption, policy, ledger, priority=priority, preemptible=preemptible
    )
    leavers = _one_after_the_other(policy, ledger, members, needed, let_in)
    for uid in sorted(leavers, key=lambda uid: (-preemptible[uid], uid)):
        if _fits_without(policy, ledger, members, needed, leavers - {uid}):
            leavers.discard(uid)
    if not leavers:
        return None
    return Preemption(
        leave=tuple(sorted(leavers)),
        priority=max(preemptible[uid] for uid in leavers),
        words=leave_clauses(ledger, leavers),
    )


def _one_after_the_other(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    let_in: Callable[[Demand], Preemption | None],
) -> set[str]:
    """Who leaves when each member gets what lets it in; nobody where too few can be let in."""
    leavers: set[str] = set()
    placed = 0
    with ledger.what_if():
        for demand in members:
            decision = policy(ledger, demand)
            if decision.outcome != "bound":
                found = let_in(demand)
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


def change_for_gang(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    stay: Container[str] = (),
) -> Change | None:
    """Whose leaving would let in as many members of a gang as are needed, whoever they are.

    Args:
        policy: says whether a member would be placed.
        ledger: as it is now; it is the same afterwards.
        members: those that have no room yet, and would not fit as it is.
        needed: how many of them have to fit.
        stay: the uids of those who are not to leave, such as the gang's own.

    Returns:
        None where no such set was found.
    """
    holders = {holder.demand for device in ledger.devices.values() for holder in device.holders}
    others = dict.fromkeys((uid for uid in holders if uid not in stay), 0)
    found = cheapest_for_gang(
        policy, ledger, members, needed=needed, priority=1, preemptible=others
    )
    return None if found is None else Change(leave=found.leave, words=found.words)


def _one_of(uids: Container[str]) -> MayLeave:
    return lambda holder: holder.demand in uids


def _fits_without(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int, leavers: set[str]
) -> bool:
    with ledger.what_if():
        for uid in leavers:
            ledger.release(uid)
        return place_gang(policy, ledger, members, needed).whole
