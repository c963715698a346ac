"""The nodes that an asker may go to now."""

from collections.abc import Callable, Iterable
from datetime import datetime

from kubeshare.api import set_aside
from kubeshare.api.eligibility import Eligibility, Eligible, without
from kubeshare.kube.controller import RequeueAfter
from kubeshare.scheduler.asker import Asker


class Places:
    """Where askers may go.

    Args:
        eligibility: the nodes that pods may go to.
        wall_clock: says whether a node is still set aside.
    """

    def __init__(self, eligibility: Eligibility, wall_clock: Callable[[], datetime]) -> None:
        self._eligibility = eligibility
        self._wall_clock = wall_clock

    def of(self, asker: Asker) -> Eligible:
        """The nodes that take the pod of an asker, and are not set aside for it."""
        aside = set_aside.active(asker.set_aside, self._wall_clock())
        return without(asker.within(self._eligibility.of(asker.pod_spec)), aside)

    def again(self, askers: Iterable[Asker]) -> RequeueAfter | None:
        """When the first node ceases to be set aside for one of these, if any is."""
        now = self._wall_clock()
        left = [
            seconds
            for asker in askers
            if (seconds := set_aside.seconds_left(set_aside.active(asker.set_aside, now), now))
            is not None
        ]
        return RequeueAfter(min(left)) if left else None
