"""Preemption for a gang, in short steps.

Each member in turn gets the cheapest set that lets it fit beside those before it. Then holders
that need not leave are taken out again, those of the highest priority first: without any one of
the rest the gang would not start. Where no set is found so, few enough holders are tried without
all of them, and taken out again likewise. If the members have to be near each other, this is done
in each of some places where they would fit without the holders, and the cheapest set is taken with
which the gang would start.

The ledger may change between two steps: :mod:`kubeshare.core.preemption_search` says what follows.
Whoever evicts the holders first looks whether the gang fits without them.
"""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change, leave_clauses
from kubeshare.core.gang import GangPlacement, Nearness, likely_scopes, placements
from kubeshare.core.gang.one_order import OneOrder
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import Preemption
from kubeshare.core.preemption_search import (
    PreemptionSearch,
    Prepare,
    Steps,
    hide_nothing,
    without,
)

SCOPES: Final = 8
"""The places that are compared for a gang whose members have to be near each other."""

T = TypeVar("T")


def finish(steps: Steps[T]) -> T:
    """The answer of a search that is not paused."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


def preempt_in_steps(  # noqa: PLR0913 - all are inputs of one question
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
    near: Nearness | None = None,
    prepare: Prepare = hide_nothing,
) -> Steps[Preemption | None]:
    """Holders whose eviction lets enough members of a gang fit.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged after each step.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        priority: the priority of the gang.
        preemptible: as in :func:`kubeshare.core.preemption.cheapest_preemption`.
        near: how near each other the members must be.
        prepare: hides in each step the places that no member may use.

    Returns:
        None if no such set was found.

    Raises:
        UnsettledError: the ledger has changed too often between the steps.
    """
    lower = {uid: value for uid, value in preemptible.items() if value < priority}
    if near is None or not near.binds:
        search = PreemptionSearch(
            policy, ledger, members, needed=needed, lower=lower, prepare=prepare
        )
        return (yield from search.run())
    if not lower:
        return None
    looking = _Scopes(
        policy, ledger, members, needed=needed, near=near, lower=lower, prepare=prepare
    )
    scopes = yield from looking.run()
    sets: list[Preemption] = []
    for scope in scopes:
        inside = [scope.narrow(each) for each in members]
        hide = _confined(scope, prepare)
        search = PreemptionSearch(policy, ledger, inside, needed=needed, lower=lower, prepare=hide)
        chosen = yield from search.run()
        sets += [chosen] if chosen else []
        yield
    # Of many scopes, a gang tries only some in all orders of its members.
    whole = PreemptionSearch(
        policy, ledger, members, needed=needed, lower=lower, prepare=prepare, near=near
    )
    for each in sorted(sets, key=lambda each: (each.priority, len(each.leave), each.leave)):
        if (yield from whole.fits_without(each.leave)):
            return each
    return None


def fewest_in_steps(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    leavers: Mapping[str, int],
    near: Nearness | None = None,
    prepare: Prepare = hide_nothing,
) -> Steps[Preemption | None]:
    """Those of some holders who still have to leave after the ledger has changed.

    ``leavers`` are their uids and priorities: without all of them, enough members fit. The other
    arguments are those of :func:`preempt_in_steps`.

    Returns:
        None if all of them have left.
    """
    search = PreemptionSearch(
        policy, ledger, members, needed=needed, lower=leavers, prepare=prepare, near=near
    )
    return (yield from search.fewest(leavers))


def cheapest_for_gang(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
    near: Nearness | None = None,
) -> Preemption | None:
    """The answer of :func:`preempt_in_steps`."""
    return finish(
        preempt_in_steps(
            policy,
            ledger,
            members,
            needed=needed,
            priority=priority,
            preemptible=preemptible,
            near=near,
        )
    )


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


def placements_without(  # noqa: PLR0913 - as above
    leavers: Collection[str],
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    near: Nearness | None = None,
    prepare: Prepare = hide_nothing,
) -> Iterator[GangPlacement]:
    """The answers of :func:`kubeshare.core.gang.placements` once some holders have left."""
    steps = placements(policy, ledger, members, needed, near)
    yield from without(ledger, leavers, steps, prepare)


class _Scopes:
    """The scopes where a gang that has to be near would fit without the holders of lower priority.

    They are listed without all those holders; in each, the gang is tried without those that hold
    something there, and without those whose label an affinity may mean.
    """

    def __init__(  # noqa: PLR0913 - as above
        self,
        policy: Policy,
        ledger: Ledger,
        members: Sequence[Demand],
        *,
        needed: int,
        near: Nearness,
        lower: Collection[str],
        prepare: Prepare,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._needed = needed
        self._near = near
        self._lower = lower
        self._prepare = prepare
        self._labelled: set[str] = set()

    def run(self) -> Steps[list[Scope]]:
        """The first :data:`SCOPES` of them."""
        if any(demand.affinity for demand in self._members):
            holders = (each for device in self._ledger.devices.values() for each in device.holders)
            self._labelled = {each.demand for each in holders if each.affinity}
        with self._ledger.what_if():
            self._prepare(self._ledger)
            self._ledger.release_all(self._lower)
            members, needed = self._members, self._needed
            listed = likely_scopes(self._policy, self._ledger, members, needed, self._near)
        yield
        found: list[Scope] = []
        for scope in listed:
            found += [scope] if (yield from self._fits(scope)) else []
            if len(found) == SCOPES:
                break
        return found

    def _fits(self, scope: Scope) -> Steps[bool]:
        misses = len(self._members) - self._needed
        trial = OneOrder(self._policy, self._ledger, self._members, scope, misses)
        while not trial.done:
            with self._ledger.what_if():
                self._prepare(self._ledger)
                self._ledger.release_all(self._in_the_way(scope))
                trial.step()
            yield
        return trial.placement.room_for >= self._needed

    def _in_the_way(self, scope: Scope) -> set[str]:
        devices = self._ledger.index(NodeDevices)
        there = (device for name in scope.nodes for device in devices.on(name))
        uids = {holder.demand for device in there for holder in device.holders}
        return {uid for uid in uids | self._labelled if uid in self._lower}


def _confined(scope: Scope, prepare: Prepare) -> Prepare:
    """What hides the places outside a scope, too."""

    def hide(ledger: Ledger) -> None:
        prepare(ledger)
        scope.confine(ledger)

    return hide
