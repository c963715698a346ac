"""The scheduler's own metrics."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.core.fragmentation.left import node_left
from kubeshare.core.fragmentation.measure import NodeLeft, fragmented_micros
from kubeshare.core.fragmentation.recent import RecentDemands
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS
from kubeshare.scheduler.requesters.base import RequesterKey

OUTCOMES: Final = ("bound", "pending", "rejected", "failed", "invalid", "stale")
"""Of decisions: those of the core, one that another package's policy failed to make, a demand that
is not valid, and a decision from an old state."""

PERIOD_SECONDS: Final = 30.0
"""Seconds between two measurements."""

WORK_AT_ONCE: Final = 5000
"""How often a GPU is held against a kind of demand before other tasks run: about 5 ms."""

_WORK_OF_A_NODE: Final = 20


class Metrics:
    """Registers the metrics.

    Args:
        registry: collects them.
        unschedulable: its length and its oldest are read at each scrape.
        wall_clock: the current time, timezone-aware.

    Attributes:
        decisions: by ``outcome``, one of ``OUTCOMES``.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        unschedulable: UnschedulableQueue[RequesterKey],
        wall_clock: Callable[[], datetime],
    ) -> None:
        self.decisions = Counter(
            "kubeshare_scheduler_decisions",
            "Decisions about SharePods and pods",
            ["outcome"],
            registry=registry,
        )
        for outcome in OUTCOMES:
            self.decisions.labels(outcome)
        Gauge(
            "kubeshare_scheduler_waiting",
            "SharePods and pods that wait for room, or for their vGPUs",
            registry=registry,
        ).set_function(unschedulable.__len__)

        def oldest_age() -> float:
            created = unschedulable.oldest()
            if not created:
                return 0.0
            return max((wall_clock() - datetime.fromisoformat(created)).total_seconds(), 0.0)

        Gauge(
            "kubeshare_scheduler_oldest_waiting_seconds",
            "Age of the oldest object among them; 0 if there is none",
            registry=registry,
        ).set_function(oldest_age)


class FragmentationMeter:
    """Two gauges: what is left of the GPUs, and what of that is a fragment.

    Args:
        registry: collects them.
        ledger: gives the cluster as it is now.
        recent: the demands of late.
    """

    def __init__(
        self, registry: CollectorRegistry, ledger: Callable[[], Ledger], recent: RecentDemands
    ) -> None:
        self._ledger, self._recent = ledger, recent
        self._unreserved = Gauge(
            "kubeshare_scheduler_unreserved_gpus",
            "GPUs and parts of GPUs that are not reserved, added up",
            registry=registry,
        )
        self._fragmented = Gauge(
            "kubeshare_scheduler_fragmented_gpus",
            "Of these what the recent demands cannot use where it is, by how often each occurs",
            registry=registry,
        )

    async def follow(self) -> None:
        """Measure from time to time, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.measure()

    async def measure(self) -> None:
        """Measure once, in steps between which other tasks run."""
        ledger, kinds = self._ledger(), self._recent.most_common()
        known: dict[NodeLeft, float] = {}
        unreserved, fragmented, work = 0, 0.0, 0
        for name in tuple(ledger.nodes):
            for left in node_left(ledger, name):
                unreserved += left.micros
                if left not in known:
                    known[left] = fragmented_micros(left, kinds)
                    work += len(left.gpus) * len(kinds)
                fragmented += known[left]
            work += _WORK_OF_A_NODE
            if work > WORK_AT_ONCE:
                work = 0
                await asyncio.sleep(0)
        self._unreserved.set(unreserved / MICROS)
        self._fragmented.set(fragmented / MICROS)
