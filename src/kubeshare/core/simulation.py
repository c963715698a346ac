"""A queue that places demands, and retries pending ones after each release.

It drives ``kubeshare plan`` and the simulator. After each release all pending demands are
retried, the highest priority first, then the oldest. The members of a gang are placed together
or not at all.

A million demands may be pending, but few differ. Demands that differ only in name get the same
decision from the same ledger, so after one of them fails, the others of its line need no retry
until something has been placed.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, Nearness, near_to, place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

_NONE: Final = -1

Bound: TypeAlias = tuple[Demand, Decision]
"""A demand that was pending, and its decision."""


class Members(NamedTuple):
    """A gang.

    Attributes:
        members: the pending ones, the oldest first.
        placed: the uids of the others.
        needed: how many more it needs.
        near: how near those that are placed these have to be.
    """

    members: list[Demand]
    placed: frozenset[str]
    needed: int
    near: Nearness | None


class _Line:
    """Pending demands that get the same decision: they ask for the same, or form one gang.

    Attributes:
        priority: their priority.
        demands: number → demand, in no particular order.
        gang: their gang, if any.
        placed: the uids of the placed members of the gang.
    """

    def __init__(self, priority: int, gang: Gang | None = None) -> None:
        self.priority = priority
        self.demands: dict[int, Demand] = {}
        self.gang = gang
        self.placed: set[str] = set()
        self._numbers: list[int] = []  # ascending; may contain removed ones

    @property
    def empty(self) -> bool:
        """Whether it has no pending demand and no placed member."""
        return not (self.demands or self.placed)

    @property
    def needed(self) -> int:
        """How many members have to be placed together next; 0 without a gang."""
        return max(0, self.gang.min_available - len(self.placed)) if self.gang else 0

    @property
    def near(self) -> Nearness | None:
        """How near the placed members the next ones are placed."""
        return self.gang.nearness(self.placed) if self.gang else None

    def add(self, number: int, demand: Demand) -> None:
        """Add the most recent demand."""
        self.demands[number] = demand
        self._numbers.append(number)

    def remove(self, number: int) -> None:
        """Remove a demand that is no longer pending."""
        del self.demands[number]
        if len(self._numbers) > 2 * len(self.demands):
            self._numbers = sorted(self.demands)

    def after(self, number: int) -> int:
        """The number of the first demand after another; -1 if there is none."""
        at = bisect_right(self._numbers, number)
        while at < len(self._numbers):
            if self._numbers[at] in self.demands:
                return self._numbers[at]
            at += 1
        return _NONE


class PlacementQueue:
    """Places demands on a ledger by a policy, and keeps the pending ones.

    Args:
        ledger: modified by placements and releases.
        policy: decides.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._count = 0
        # What is asked for, or a gang -> its line.
        self._lines: dict[Hashable, _Line] = {}
        self._positions: dict[str, tuple[Hashable, int]] = {}  # uid -> line and number
        self._placed: dict[str, Hashable] = {}  # uid of a placed member -> its gang

    def submit(self, demand: Demand, priority: int = 0) -> Decision:
        """Place a demand, or queue it if the outcome is ``pending``."""
        decision = self._place(demand)
        if decision.outcome == "pending":
            line = self._lines.setdefault(_shape(demand, priority), _Line(priority))
            self._wait(_shape(demand, priority), line, demand)
        return decision

    def join(self, demand: Demand, gang: Gang, priority: int = 0) -> tuple[Decision, list[Bound]]:
        """Place a member of a gang, or queue it if the outcome is ``pending``.

        Returns:
            its decision, and earlier members that are bound now.

        Raises:
            InvalidValueError: its ``priority``, ``min_available`` or ``near`` differs from that
                of the other members.
        """
        key = "gang", demand.namespace, gang.name
        line = self._lines.setdefault(key, _Line(priority, gang))
        assert line.gang is not None  # only the line of a gang has such a key
        _check_alike("priority", priority, line.priority, gang)
        _check_alike("min_available", gang.min_available, line.gang.min_available, gang)
        _check_alike("near", gang.near or "none", line.gang.near or "none", gang)
        self._wait(key, line, demand)
        bound, refusal = self._start(line, self._count - 1)
        mine = next((decision for each, decision in bound if each.uid == demand.uid), refusal)
        if mine.outcome == "rejected":
            self._forget(demand.uid)
        return mine, [each for each in bound if each[0].uid != demand.uid]

    def waiting(self, demand: Demand, gang: Gang) -> Members:
        """The gang of a pending demand."""
        line = self._lines["gang", demand.namespace, gang.name]
        members = [line.demands[number] for number in sorted(line.demands)]
        return Members(members, frozenset(line.placed), line.needed, line.near)

    def release(self, demand_uid: str) -> Iterator[Bound]:
        """End a demand, whether it is placed, pending or was never accepted.

        Yields:
            each pending demand that is bound now.
        """
        if demand_uid in self._positions:
            self._forget(demand_uid)
        if demand_uid in self._placed:
            key = self._placed.pop(demand_uid)
            self._lines[key].placed.discard(demand_uid)
            self._drop_if_empty(key)
        if self._ledger.held_by(demand_uid):
            self._ledger.release(demand_uid)
        yield from self._retry()

    def _retry(self) -> Iterator[Bound]:
        """Retry all pending demands in their order, each once."""
        lines = list(self._lines.values())
        # The oldest demand of each line that has yet to be retried, and the lines of which one
        # demand failed since the last placement.
        oldest = [
            (-line.priority, line.after(-1), index)
            for index, line in enumerate(lines)
            if line.demands
        ]
        heapify(oldest)
        failed: list[int] = []
        while oldest:
            _, number, index = heappop(oldest)
            bound, _ = self._start(lines[index], number)
            if not bound:
                failed.append(index)
                continue
            yield from bound
            # The ledger has changed: retry the next later demand of each line.
            for again in (*failed, index):
                later = lines[again].after(number)
                if later != _NONE:
                    heappush(oldest, (-lines[again].priority, later, again))
            failed.clear()

    def _start(self, line: _Line, number: int) -> tuple[list[Bound], Decision]:
        """Place one demand, or as many members of its gang as have to be placed together.

        Returns:
            the bound ones, and the decision about this one if it is not among them.
        """
        demand = line.demands[number]
        if not line.needed:
            decision = self._place(demand, line.near)
            if decision.outcome == "bound":
                self._mark_placed(demand.uid)
            return [(demand, decision)] if decision.outcome == "bound" else [], decision
        gang = line.gang
        assert gang is not None  # without a gang nothing else is needed
        waiting = [line.demands[number] for number in sorted(line.demands)]
        needed = line.needed
        if few := gang.too_few(len(line.placed) + len(waiting)):
            return [], gang.pending(few)
        placement = place_gang(self._policy, self._ledger, waiting, needed, line.near)
        for placed in placement.placed:
            commit(self._ledger, placed.demand, placed.decision)
            self._mark_placed(placed.demand.uid)
        bound = {placed.demand.uid: placed.decision for placed in placement.placed}
        if placement.whole:
            refusal = bound.get(demand.uid) or self._decide(demand, line.near)
        else:
            refusal = gang.pending(gang.no_room(needed, placement), placement.unplaced)
        return [(each, bound[each.uid]) for each in waiting if each.uid in bound], refusal

    def _wait(self, key: Hashable, line: _Line, demand: Demand) -> None:
        line.add(self._count, demand)
        self._positions[demand.uid] = key, self._count
        self._count += 1

    def _mark_placed(self, uid: str) -> None:
        """Move a demand from pending to placed."""
        key, number = self._positions.pop(uid)
        line = self._lines[key]
        line.remove(number)
        if line.gang is not None:
            line.placed.add(uid)
            self._placed[uid] = key
        self._drop_if_empty(key)

    def _forget(self, uid: str) -> None:
        key, number = self._positions.pop(uid)
        self._lines[key].remove(number)
        self._drop_if_empty(key)

    def _drop_if_empty(self, key: Hashable) -> None:
        if self._lines[key].empty:
            del self._lines[key]

    def _place(self, demand: Demand, near: Nearness | None = None) -> Decision:
        decision = self._decide(demand, near)
        if decision.outcome == "bound":
            commit(self._ledger, demand, decision)
        return decision

    def _decide(self, demand: Demand, near: Nearness | None) -> Decision:
        policy = near_to(self._policy, near) if near else self._policy
        return policy(self._ledger, demand)


def _shape(demand: Demand, priority: int) -> Hashable:
    """What a demand asks for, without the requester."""
    return msgspec.structs.replace(demand, uid="", name=""), priority


def _check_alike(field: str, mine: int | str, theirs: int | str, gang: Gang) -> None:
    if mine != theirs:
        words = f"{mine} differs from {theirs} of the other members of gang {gang.name}"
        raise InvalidValueError(field, words)
