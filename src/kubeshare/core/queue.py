"""Demands in the order in which they came: placed at once, or waiting for a release.

The simulator of a scenario in its smallest form. It keeps the promise that nothing
waits silently: after each release everything that waits is asked again, oldest first.
"""

from collections.abc import Iterator

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy


class Queue:
    """Places demands on a ledger by a policy, and remembers those that wait.

    Args:
        ledger: changed by what is bound and released.
        policy: decides.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._waiting: dict[str, Demand] = {}  # uid -> demand, oldest first

    def submit(self, demand: Demand) -> Decision:
        """Ask for a demand; it waits when the answer is ``pending``."""
        decision = self._ask(demand)
        if decision.outcome == "pending":
            self._waiting[demand.uid] = demand
        return decision

    def release(self, demand_uid: str) -> Iterator[tuple[Demand, Decision]]:
        """End a demand, whether it holds something, waits, or was never accepted.

        Yields:
            each demand that waited and is now bound.
        """
        self._waiting.pop(demand_uid, None)
        if self._ledger.held_by(demand_uid):
            self._ledger.release(demand_uid)
        for demand in list(self._waiting.values()):
            decision = self._ask(demand)
            if decision.outcome == "bound":
                del self._waiting[demand.uid]
                yield demand, decision

    def _ask(self, demand: Demand) -> Decision:
        decision = self._policy(self._ledger, demand)
        if decision.outcome == "bound":
            commit(self._ledger, demand, decision)
        return decision
