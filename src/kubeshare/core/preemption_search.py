"""Searches the holders that leave for a gang, in short steps.

All is tried on the ledger itself, which others read between two steps. So each step undoes what it
did, and the next one does it again as decided. Where the ledger has changed meanwhile so that a
decision no longer holds, the search goes back to that member.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import leave_clauses
from kubeshare.core.errors import UnsettledError
from kubeshare.core.gang import GangPlacement, Nearness, placements
from kubeshare.core.gang.room import may_have_room, necessary
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import Preemption, cheapest_preemption

DECIDED_AT_ONCE: Final = 128
"""Members that are placed in a step, beside those of earlier steps that are placed again."""
LOOKED_AT_ONCE: Final = 512
"""GPUs that are looked at in a step for holders to evict; for one member, all are."""
RETURNS: Final = 32
"""How often a search goes back to a member before it is given up."""
ROUNDS: Final = 8
"""How often holders are added to a set without which too few members fit."""
TOGETHER: Final = 512
"""Holders of lower priority at most for the gang to be tried without all of them."""
MOST_TRIED: Final = 128
"""Holders of these at most that are tried for whether they could stay."""

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A search that can be paused after each step, and returns its answer at the end."""
Prepare: TypeAlias = Callable[[Ledger], object]
"""Hides places in a ledger, which the caller restores."""


def hide_nothing(_: Ledger) -> None:
    """See all places of a ledger."""


class _Place(NamedTuple):
    """A placed member, the holders that leave for it, and what it was decided for.

    ``number`` is its number among the members; ``seen`` are the node and the vGPUs of the decision,
    as they were without those holders.
    """

    number: int
    leave: tuple[str, ...]
    demand: Demand
    decision: Decision
    seen: tuple[Node | None, tuple[Device | None, ...]]


class PreemptionSearch:
    """The cheapest set of holders wherever the policy places the members.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged after each step.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        lower: uid of each holder that may leave -> its priority.
        prepare: hides in each step the places where no member is to be placed.
        near: how near each other they must be in the end; no holder is found by it.
    """

    def __init__(  # noqa: PLR0913 - all are inputs of one question
        self,
        policy: Policy,
        ledger: Ledger,
        members: Sequence[Demand],
        *,
        needed: int,
        lower: Mapping[str, int],
        prepare: Prepare = hide_nothing,
        near: Nearness | None = None,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._needed = needed
        self._lower = lower
        self._prepare = prepare
        self._near = near
        self._gone: set[str] = set()  # holders that earlier rounds have chosen
        self._places: list[_Place] = []
        self._tried = 0
        self._returns = 0

    def run(self) -> Steps[Preemption | None]:
        """The set; None if none was found.

        Raises:
            UnsettledError: the ledger has changed too often.
        """
        found = yield from self._for_each_member()
        if found is None:
            found = yield from self._of_all()
        return found

    def _for_each_member(self) -> Steps[Preemption | None]:
        """Holders evicted for one member after another.

        The members before the one for which a holder leaves are placed beside it. Once it has left,
        the policy may place them elsewhere, and leave too little room for the others. So all are
        tried without the set, and if too few fit, the search goes on without it.
        """
        for _ in range(ROUNDS):
            chosen = yield from self._one_by_one()
            if not chosen:
                return None
            self._gone |= chosen
            yield
            if (yield from self.fits_without(self._gone)):
                return (yield from self.fewest(self._gone))
            self._places, self._tried = [], 0
        return None

    def _of_all(self) -> Steps[Preemption | None]:
        """Some of all that may leave, if enough members fit without all of them.

        One after another, a member may take the place that a later one needs, or keep a holder
        whose leaving helps only together with others.
        """
        yield
        if not 0 < len(self._lower) <= TOGETHER or not self._may_have_room():
            return None
        yield
        placement = yield from self._placement_without(self._lower)
        if placement is None:
            return None
        ids = {each for placed in placement.placed for each in placed.decision.devices}
        devices = [self._ledger.devices[each] for each in ids if each in self._ledger.devices]
        there = {holder.demand for device in devices for holder in device.holders}
        # A holder elsewhere has to leave if it has a label that a member has to join.
        for leavers in (there & self._lower.keys(), self._lower.keys()):
            if len(leavers) <= MOST_TRIED and (yield from self.fits_without(leavers)):
                return (yield from self.fewest(leavers))
        return None

    def _may_have_room(self) -> bool:
        """Whether, by arithmetic alone, enough members fit without all that may leave."""
        with self._ledger.what_if():
            self._prepare(self._ledger)
            self._ledger.release_all(self._lower)
            return may_have_room(self._ledger, self._members, self._needed)

    def fewest(self, leavers: Collection[str]) -> Steps[Preemption | None]:
        """Those of a set that suffices without whom it would not; None if all have left."""
        leaving = set(filter(self._ledger.held_by, leavers))
        for uid in (yield from self._dispensable(leaving)):
            if (yield from self.fits_without(leaving - {uid})):
                leaving.discard(uid)
        leaving = set(filter(self._ledger.held_by, leaving))
        if not leaving:
            return None
        return Preemption(
            leave=tuple(sorted(leaving)),
            priority=max(self._lower[uid] for uid in leaving),
            words=leave_clauses(self._ledger, leaving, self._members[0]),
        )

    def fits_without(self, leavers: Collection[str]) -> Steps[bool]:
        """Whether enough members fit once some holders have left."""
        return (yield from self._placement_without(leavers)) is not None

    def _placement_without(self, leavers: Collection[str]) -> Steps[GangPlacement | None]:
        """Where enough members fit once some holders have left; None if too few do."""
        tried = placements(self._policy, self._ledger, self._members, self._needed, self._near)
        for placement in without(self._ledger, leavers, tried, self._prepare):
            yield
            if placement.whole:
                return placement
        return None

    def _dispensable(self, leavers: Collection[str]) -> Steps[list[str]]:
        """Those that may not be necessary, of the highest priority first."""
        with self._ledger.what_if():
            self._prepare(self._ledger)
            needed = necessary(self._ledger, self._members, self._needed, leavers)
        yield
        rest = (uid for uid in leavers if uid not in needed)
        return sorted(rest, key=lambda uid: (-self._lower[uid], uid))

    def _one_by_one(self) -> Steps[set[str]]:
        """The holders evicted for one member after another; none if too few members fit.

        They are beside those of earlier rounds.
        """
        while True:
            with self._ledger.what_if():
                self._prepare(self._ledger)
                self._step()
            if self._decided:
                break
            yield
        if len(self._places) < self._needed:
            return set()
        return {uid for place in self._places for uid in place.leave}

    @property
    def _decided(self) -> bool:
        """Whether enough members are placed, or too few can be."""
        spare = len(self._members) - self._needed
        placed = len(self._places)
        return placed >= self._needed or self._tried - placed > spare

    def _step(self) -> None:
        """Place the members of earlier steps again, and decide the next ones."""
        self._ledger.release_all(self._gone)
        earlier, self._places = self._places, []
        for place in earlier:
            if not self._again(place):
                self._return_to(place)
                return
        looks = max(1, LOOKED_AT_ONCE // max(1, len(self._ledger.devices)))
        for demand in self._members[self._tried : self._tried + DECIDED_AT_ONCE]:
            looks -= self._decide(demand)
            self._tried += 1
            if not looks or self._decided:
                break

    def _again(self, place: _Place) -> bool:
        """Place a member as it was decided, if that would be decided now."""
        self._ledger.release_all(place.leave)
        if self._seen(place.decision) != place.seen:
            return False
        if place.demand.affinity:  # its label may be on another GPU by now
            decision = self._policy(self._ledger, place.demand)
            if decision.devices != place.decision.devices:
                return False
        commit(self._ledger, place.demand, place.decision)
        self._places.append(place)
        return True

    def _return_to(self, place: _Place) -> None:
        """Let the next step decide a member anew, and those after it."""
        self._tried = place.number
        self._returns += 1
        if self._returns > RETURNS:
            raise UnsettledError(f"the ledger has changed during {RETURNS} steps")

    def _decide(self, demand: Demand) -> bool:
        """Place a member; whether holders to evict were looked for."""
        decision = self._policy(self._ledger, demand)
        looked = decision.outcome != "bound"
        leave: tuple[str, ...] = ()
        if looked:
            # All in the mapping are of a lower priority.
            above = max(self._lower.values(), default=0) + 1
            found = cheapest_preemption(
                self._policy, self._ledger, demand, priority=above, preemptible=self._lower
            )
            if found is None:
                return looked
            leave = found.leave
            decision = self._decide_without(leave, demand)
            if decision.outcome != "bound":  # a policy may answer otherwise when asked again
                return looked
            self._ledger.release_all(leave)
        self._places.append(_Place(self._tried, leave, demand, decision, self._seen(decision)))
        commit(self._ledger, demand, decision)
        return looked

    def _decide_without(self, leave: Collection[str], demand: Demand) -> Decision:
        with self._ledger.what_if():
            self._ledger.release_all(leave)
            return self._policy(self._ledger, demand)

    def _seen(self, decision: Decision) -> tuple[Node | None, tuple[Device | None, ...]]:
        nodes, devices = self._ledger.nodes, self._ledger.devices
        return nodes.get(decision.node or ""), tuple(map(devices.get, decision.devices))


def without(
    ledger: Ledger,
    leavers: Collection[str],
    steps: Iterator[T],
    prepare: Prepare = hide_nothing,
) -> Iterator[T]:
    """What each step of a search finds once some holders have left."""
    while True:
        with ledger.what_if():
            prepare(ledger)
            ledger.release_all(leavers)
            try:
                found = next(steps)
            except StopIteration:
                return
        yield found
