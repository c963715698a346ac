"""Demands in the order in which they came: placed at once, or waiting for a release.

The simulator of a scenario in its smallest form. It keeps the promise that nothing
waits silently: after each release everything that waits is asked again, oldest first.

A million may wait, and few of them are unlike all others. Demands that differ in nothing
but their names get the same answer from the same ledger, so once one of them has to go on
waiting the others need not be asked before somebody is placed.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy

_NOBODY: Final = -1


class _Alike:
    """Demands that ask the same, by the number of their coming.

    Attributes:
        demands: number → demand, in no order that is relied on.
    """

    def __init__(self) -> None:
        self.demands: dict[int, Demand] = {}
        self._numbers: list[int] = []  # ascending; those that are gone are still among them

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


class Queue:
    """Places demands on a ledger by a policy, and remembers those that wait.

    Args:
        ledger: changed by what is bound and released.
        policy: decides.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._came = 0
        # What is asked -> those who ask just that, by the order in which they came.
        self._waiting: dict[Hashable, _Alike] = {}
        self._places: dict[str, tuple[Hashable, int]] = {}  # uid -> where it waits

    def submit(self, demand: Demand) -> Decision:
        """Ask for a demand; it waits when the answer is ``pending``."""
        decision = self._ask(demand)
        if decision.outcome == "pending":
            shape = _shape(demand)
            self._waiting.setdefault(shape, _Alike()).add(self._came, demand)
            self._places[demand.uid] = shape, self._came
            self._came += 1
        return decision

    def release(self, demand_uid: str) -> Iterator[tuple[Demand, Decision]]:
        """End a demand, whether it holds something, waits, or was never accepted.

        Yields:
            each demand that waited and is now bound.
        """
        if demand_uid in self._places:
            self._forget(demand_uid)
        if self._ledger.held_by(demand_uid):
            self._ledger.release(demand_uid)
        yield from self._try_again()

    def _try_again(self) -> Iterator[tuple[Demand, Decision]]:
        """Ask for all that wait, oldest first, each once."""
        waiting = list(self._waiting.values())
        # The oldest of each kind that is still to be asked, and the kinds of which one has
        # been refused since somebody was placed.
        oldest = [(alike.after(-1), index) for index, alike in enumerate(waiting)]
        heapify(oldest)
        refused: list[int] = []
        while oldest:
            came, index = heappop(oldest)
            demand = waiting[index].demands[came]
            decision = self._ask(demand)
            if decision.outcome != "bound":
                refused.append(index)
                continue
            self._forget(demand.uid)
            yield demand, decision
            # The ledger is another one now: the next of each kind that came later is asked.
            for again in (*refused, index):
                later = waiting[again].after(came)
                if later != _NOBODY:
                    heappush(oldest, (later, again))
            refused.clear()

    def _forget(self, uid: str) -> None:
        shape, came = self._places.pop(uid)
        alike = self._waiting[shape]
        alike.remove(came)
        if not alike.demands:
            del self._waiting[shape]

    def _ask(self, demand: Demand) -> Decision:
        decision = self._policy(self._ledger, demand)
        if decision.outcome == "bound":
            commit(self._ledger, demand, decision)
        return decision


def _shape(demand: Demand) -> Hashable:
    """All that a demand asks, without who asks."""
    return msgspec.structs.replace(demand, uid="", name="")
