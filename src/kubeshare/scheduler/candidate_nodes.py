"""Finds the nodes that a requester may run on now."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates import exclusions
from kubeshare.api.predicates.eligibility import Eligibility, Eligible, without_excluded
from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.api.upgrades import Upgrades
from kubeshare.core.demand import Demand
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.scheduler.requesters.base import Requester

MAX_REQUESTERS: Final = 4096
"""Requesters with exclusions of this program; the oldest entry is dropped first."""


class CandidateNodes:
    """Eligible nodes less those that are excluded for the requester for a while.

    Args:
        eligibility: the nodes that accept a pod.
        configuration: gives the length of an exclusion.
        upgrades: which nodes cannot carry out a demand yet.
        wall_clock: gives the present, aware.
    """

    def __init__(
        self,
        eligibility: Eligibility,
        configuration: DynamicConfiguration,
        upgrades: Upgrades,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._eligibility = eligibility
        self._upgrades = upgrades
        self._configuration = configuration
        self._wall_clock = wall_clock
        self._excluded: dict[str, tuple[ExcludedNode, ...]] = {}  # by the uid of a requester

    def of(self, requester: Requester, demand: Demand) -> Eligible:
        """The nodes that accept the requester's pod and are not excluded for it.

        Args:
            requester: the object.
            demand: its demand.
        """
        return self._narrowed(self._accepting(requester, demand), requester, demand)

    def has(self, node: str, requester: Requester, demand: Demand) -> bool:
        """Whether a node is one of those; the others are not looked at."""
        accepting = self._accepting(requester, demand)
        if node not in accepting.nodes:
            return False
        alone = structs.replace(accepting, nodes=frozenset({node}))
        return node in self._narrowed(alone, requester, demand).nodes

    def _accepting(self, requester: Requester, demand: Demand) -> Eligible:
        """The nodes that accept the requester's pod as far as its spec says."""
        return self._eligibility.of(requester.pod_spec, demand.family)

    def _narrowed(self, accepting: Eligible, requester: Requester, demand: Demand) -> Eligible:
        """Those of them that are not refused for another reason."""
        eligible = self._upgrades.filter(demand, requester.filter(accepting))
        now = self._wall_clock()
        return without_excluded(eligible, exclusions.active(self._entries(requester), now))

    def exclude(self, requester: Requester, node: str, message: str, *, gpuid: str = "") -> None:
        """Exclude a node, or one vGPU of it, for a requester that is not bound.

        Args:
            requester: the requester that could not use it.
            node: the name of the node.
            message: why, for people.
            gpuid: the vGPU, if other GPUs of the node may be used.
        """
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        known = self._excluded.pop(requester.uid, ())
        now = self._wall_clock()
        self._excluded[requester.uid] = exclusions.add(
            known, node, message, now, pause, gpuid=gpuid
        )
        if len(self._excluded) > MAX_REQUESTERS:
            del self._excluded[next(iter(self._excluded))]

    def next_retry(self, requesters: Iterable[Requester]) -> RequeueAfter | None:
        """When the first exclusion for one of these requesters ends; None if there is none."""
        now = self._wall_clock()
        left = (exclusions.seconds_left(self._entries(requester), now) for requester in requesters)
        first = min((seconds for seconds in left if seconds is not None), default=None)
        return None if first is None else RequeueAfter(first)

    def _entries(self, requester: Requester) -> Sequence[ExcludedNode]:
        return (*requester.excluded, *self._excluded.get(requester.uid, ()))
