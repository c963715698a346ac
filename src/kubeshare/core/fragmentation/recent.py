"""The last demands of a workload, counted by their kinds."""

from collections import Counter, OrderedDict
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.fragmentation.measure import DemandClass

WINDOW: Final = 4096
"""The most demands that are remembered; at one more the oldest is forgotten."""

MAX_KINDS: Final = 64
"""The most kinds that fragmentation is computed for: those that occur most often."""


class RecentDemands:
    """The last demands of a workload, by their kinds.

    Args:
        window: how many at most.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._kinds: OrderedDict[str, tuple[DemandClass, ...]] = OrderedDict()  # by uid
        self._times: Counter[DemandClass] = Counter()

    def __contains__(self, uid: str) -> bool:
        """Whether the demand of this uid is remembered."""
        return uid in self._kinds

    def add(self, demand: Demand) -> None:
        """Remember a demand, of several shares each; nothing if it is remembered already."""
        if demand.uid not in self:
            self.add_kinds(demand.uid, tuple(map(DemandClass.of, demand.reduced())))

    def add_kinds(self, uid: str, kinds: tuple[DemandClass, ...]) -> None:
        """Remember a new demand by its kinds."""
        self._kinds[uid] = kinds
        for kind in kinds:
            self._times[kind] += 1
        if len(self._kinds) > self._window:
            _, oldest = self._kinds.popitem(last=False)
            for kind in oldest:
                self._times[kind] -= 1
                if not self._times[kind]:
                    del self._times[kind]

    def most_common(self, most: int = MAX_KINDS) -> dict[DemandClass, int]:
        """The kinds that occur most often, at most so many, and how often each does."""
        return dict(self._times.most_common(most))
