"""Learns the workload from the demands that came so far."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.fragmentation.measure import DemandClass
from kubeshare.core.fragmentation.recent import WINDOW, RecentDemands
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.ranked import RankedNodes
from kubeshare.simulator.gradient.policy import Gradient

FIRST: Final = 64
"""After so many demands the workload is learnt first, and then each time after four times as many,
at last after each window."""

MAX_KINDS: Final = 1024
"""The most kinds that are told apart: those that occur most often."""

LOAD: Final = 1.3
"""For how many times all GPUs the recent demands are taken to ask at once: what is scarce matters
when not all can be placed."""


class RecentGradient(RankedNodes):
    """Ranks as :class:`Gradient`, by the distribution of the recent demands.

    It begins without any, so that the first node by name is taken.

    Attributes:
        recent: those demands.
    """

    def __init__(self) -> None:
        super().__init__(Gradient({}, {}))
        self.recent = RecentDemands()
        self._seen, self._next = 0, FIRST

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Place a demand, and count it."""
        decision = super().__call__(ledger, demand)
        if demand.uid not in self.recent:
            self._add(demand.uid, self.kind(demand))
        return decision

    def _add(self, uid: str, kind: DemandClass) -> None:
        self.recent.add_kinds(uid, (kind,))
        self._seen += 1
        if self._seen == self._next:
            self._next = self._seen + min(3 * self._seen, WINDOW)
            kinds = self.recent.most_common(MAX_KINDS)
            self.rank_by(Gradient(kinds, offered_by(kinds)))


def offered_by(kinds: Mapping[DemandClass, int]) -> dict[int, float]:
    """Micros of a share → how many are asked for at once for each GPU, at ``LOAD``."""
    asked = sum(kind.micros * kind.count * times for kind, times in kinds.items())
    offered: defaultdict[int, float] = defaultdict(float)
    for kind, times in kinds.items():
        if kind.micros:
            offered[kind.micros] += kind.count * times * LOAD * MICROS / asked
    return dict(offered)
