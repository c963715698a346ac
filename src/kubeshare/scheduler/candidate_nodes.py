"""The nodes that an asker may go to now."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates import exclusions
from kubeshare.api.predicates.eligibility import Eligibility, Eligible, without_excluded
from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.scheduler.requesters.base import Requester

MAX_REQUESTERS: Final = 4096
"""Askers for which this program has set nodes aside; the one that was first goes first."""


class CandidateNodes:
    """Where askers may go.

    Args:
        eligibility: the nodes that pods may go to.
        configuration: says for how long a node is set aside.
        wall_clock: says whether a node is still set aside.
    """

    def __init__(
        self,
        eligibility: Eligibility,
        configuration: DynamicConfiguration,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._eligibility = eligibility
        self._configuration = configuration
        self._wall_clock = wall_clock
        self._avoided: dict[str, tuple[ExcludedNode, ...]] = {}  # by the uid of an asker

    def of(self, requester: Requester) -> Eligible:
        """The nodes that take the pod of an asker, and are not set aside for it."""
        where = requester.filter(self._eligibility.of(requester.pod_spec))
        return without_excluded(
            where, exclusions.active(self._aside(requester), self._wall_clock())
        )

    def exclude(self, requester: Requester, node: str, message: str, *, gpuid: str = "") -> None:
        """Set a node, or a vGPU of it, aside for an asker that has not been told of it.

        Args:
            requester: who has waited there in vain.
            node: which.
            message: why.
            gpuid: the vGPU, where others of the node would do.
        """
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        known = self._avoided.pop(requester.uid, ())
        now = self._wall_clock()
        self._avoided[requester.uid] = exclusions.add(known, node, message, now, pause, gpuid=gpuid)
        if len(self._avoided) > MAX_REQUESTERS:
            del self._avoided[next(iter(self._avoided))]

    def next_retry(self, requesters: Iterable[Requester]) -> RequeueAfter | None:
        """When the first node ceases to be set aside for one of these, if any is."""
        now = self._wall_clock()
        left = [
            seconds
            for requester in requesters
            if (
                seconds := exclusions.seconds_left(
                    exclusions.active(self._aside(requester), now), now
                )
            )
            is not None
        ]
        return RequeueAfter(min(left)) if left else None

    def _aside(self, requester: Requester) -> Sequence[ExcludedNode]:
        return (*requester.excluded, *self._avoided.get(requester.uid, ()))
