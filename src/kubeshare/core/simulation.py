"""Demands in the order in which they came: placed at once, or waiting for a release.

The simulator of a scenario in its smallest form. It keeps the promise that nothing
waits silently: after each release everything that waits is asked again, the highest
priority first, and of one priority the oldest. The members of a gang are placed together
or not at all.

A million may wait, and few of them are unlike all others. Demands that differ in nothing
but their names get the same answer from the same ledger, so once one of them has to go on
waiting the others need not be asked before somebody is placed.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

_NOBODY: Final = -1

Bound: TypeAlias = tuple[Demand, Decision]
"""A demand that has waited, and where it goes."""


class Members(NamedTuple):
    """A gang: those that wait, the oldest first; uids of the placed; how many more it needs."""

    members: list[Demand]
    placed: frozenset[str]
    needed: int


class _Line:
    """Demands that wait and get the same answer: they ask the same, or are of one gang.

    Attributes:
        priority: theirs.
        demands: number → demand, in no order that is relied on.
        gang: theirs, if they have one.
        placed: the uids of that gang's members that are placed.
    """

    def __init__(self, priority: int, gang: Gang | None = None) -> None:
        self.priority = priority
        self.demands: dict[int, Demand] = {}
        self.gang = gang
        self.placed: set[str] = set()
        self._numbers: list[int] = []  # ascending; those that are gone are still among them

    @property
    def empty(self) -> bool:
        """Nobody is in it."""
        return not (self.demands or self.placed)

    @property
    def needed(self) -> int:
        """How many more members have to be placed together before any is; 0 without a gang."""
        return max(0, self.gang.min_available - len(self.placed)) if self.gang else 0

    def add(self, number: int, demand: Demand) -> None:
        """Add the one that came last."""
        self.demands[number] = demand
        self._numbers.append(number)

    def remove(self, number: int) -> None:
        """One waits no more."""
        del self.demands[number]
        if len(self._numbers) > 2 * len(self.demands):
            self._numbers = sorted(self.demands)

    def after(self, number: int) -> int:
        """The first that came after another, or nobody."""
        at = bisect_right(self._numbers, number)
        while at < len(self._numbers):
            if self._numbers[at] in self.demands:
                return self._numbers[at]
            at += 1
        return _NOBODY


class PlacementQueue:
    """Places demands on a ledger by a policy, and remembers those that wait.

    Args:
        ledger: changed by what is bound and released.
        policy: decides.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._came = 0
        # What is asked, or a gang -> those who wait in that line, by the order of their coming.
        self._lines: dict[Hashable, _Line] = {}
        self._places: dict[str, tuple[Hashable, int]] = {}  # uid -> where it waits
        self._placed: dict[str, Hashable] = {}  # uid of a gang's member that is placed -> gang

    def submit(self, demand: Demand, priority: int = 0) -> Decision:
        """Ask for a demand; it waits when the answer is ``pending``."""
        decision = self._ask(demand)
        if decision.outcome == "pending":
            line = self._lines.setdefault(_shape(demand, priority), _Line(priority))
            self._wait(_shape(demand, priority), line, demand)
        return decision

    def join(self, demand: Demand, gang: Gang, priority: int = 0) -> tuple[Decision, list[Bound]]:
        """Ask for a member of a gang; it waits when the answer is ``pending``.

        Returns:
            the answer, and the members before it that are bound by its coming.

        Raises:
            InvalidValueError: it says something else of its gang than the others; under
                ``priority`` or ``min_available``.
        """
        key = "gang", demand.namespace, gang.name
        line = self._lines.setdefault(key, _Line(priority, gang))
        assert line.gang is not None  # nobody else's line has such a name
        _check_alike("priority", priority, line.priority, gang)
        _check_alike("min_available", gang.min_available, line.gang.min_available, gang)
        self._wait(key, line, demand)
        bound, refusal = self._start(line, self._came - 1)
        mine = next((decision for each, decision in bound if each.uid == demand.uid), refusal)
        if mine.outcome == "rejected":
            self._forget(demand.uid)
        return mine, [each for each in bound if each[0].uid != demand.uid]

    def waiting(self, demand: Demand, gang: Gang) -> Members:
        """Those of the gang of a demand that waits."""
        line = self._lines["gang", demand.namespace, gang.name]
        members = [line.demands[number] for number in sorted(line.demands)]
        return Members(members, frozenset(line.placed), line.needed)

    def release(self, demand_uid: str) -> Iterator[Bound]:
        """End a demand, whether it holds something, waits, or was never accepted.

        Yields:
            each demand that waited and is now bound.
        """
        if demand_uid in self._places:
            self._forget(demand_uid)
        if demand_uid in self._placed:
            key = self._placed.pop(demand_uid)
            self._lines[key].placed.discard(demand_uid)
            self._drop_if_empty(key)
        if self._ledger.held_by(demand_uid):
            self._ledger.release(demand_uid)
        yield from self._try_again()

    def _try_again(self) -> Iterator[Bound]:
        """Ask for all that wait, in their order, each once."""
        lines = list(self._lines.values())
        # The oldest of each line that is still to be asked, and the lines of which one has
        # been refused since somebody was placed.
        oldest = [
            (-line.priority, line.after(-1), index)
            for index, line in enumerate(lines)
            if line.demands
        ]
        heapify(oldest)
        refused: list[int] = []
        while oldest:
            _, came, index = heappop(oldest)
            bound, _ = self._start(lines[index], came)
            if not bound:
                refused.append(index)
                continue
            yield from bound
            # The ledger is another one now: the next of each line that came later is asked.
            for again in (*refused, index):
                later = lines[again].after(came)
                if later != _NOBODY:
                    heappush(oldest, (-lines[again].priority, later, again))
            refused.clear()

    def _start(self, line: _Line, came: int) -> tuple[list[Bound], Decision]:
        """Place one, or as many of its gang as have to be placed with it.

        Returns:
            those that are bound, and what the one is told otherwise.
        """
        demand = line.demands[came]
        if not line.needed:
            decision = self._ask(demand)
            if decision.outcome == "bound":
                self._take_place(demand.uid)
            return [(demand, decision)] if decision.outcome == "bound" else [], decision
        gang = line.gang
        assert gang is not None  # else nobody else would be needed
        waiting = [line.demands[number] for number in sorted(line.demands)]
        needed = line.needed
        if few := gang.too_few(len(line.placed) + len(waiting)):
            return [], gang.waits(few)
        answer = place_gang(self._policy, self._ledger, waiting, needed)
        for placed in answer.placed:
            commit(self._ledger, placed.demand, placed.decision)
            self._take_place(placed.demand.uid)
        bound = {placed.demand.uid: placed.decision for placed in answer.placed}
        if answer.whole:
            refusal = self._policy(self._ledger, demand)
        else:
            refusal = gang.waits(gang.no_room(needed, answer), answer.short)
        return [(each, bound[each.uid]) for each in waiting if each.uid in bound], refusal

    def _wait(self, key: Hashable, line: _Line, demand: Demand) -> None:
        line.add(self._came, demand)
        self._places[demand.uid] = key, self._came
        self._came += 1

    def _take_place(self, uid: str) -> None:
        """One waits no more, since it is placed."""
        key, came = self._places.pop(uid)
        line = self._lines[key]
        line.remove(came)
        if line.gang is not None:
            line.placed.add(uid)
            self._placed[uid] = key
        self._drop_if_empty(key)

    def _forget(self, uid: str) -> None:
        key, came = self._places.pop(uid)
        self._lines[key].remove(came)
        self._drop_if_empty(key)

    def _drop_if_empty(self, key: Hashable) -> None:
        if self._lines[key].empty:
            del self._lines[key]

    def _ask(self, demand: Demand) -> Decision:
        decision = self._policy(self._ledger, demand)
        if decision.outcome == "bound":
            commit(self._ledger, demand, decision)
        return decision


def _shape(demand: Demand, priority: int) -> Hashable:
    """All that a demand asks, without who asks."""
    return msgspec.structs.replace(demand, uid="", name=""), priority


def _check_alike(field: str, mine: int, theirs: int, gang: Gang) -> None:
    if mine != theirs:
        words = f"{mine} differs from {theirs} of the other members of gang {gang.name}"
        raise InvalidValueError(field, words)
