"""The scheduler's own metrics."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.scheduler.requesters.base import RequesterKey

OUTCOMES: Final = ("bound", "pending", "rejected", "failed", "invalid", "stale")
"""Of decisions: those of the core, one that another package's policy failed to make, a demand that
is not valid, and a decision from an old state."""


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
