"""What the scheduler counts of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.scheduler.requesters.base import RequesterKey


class Metrics:
    """The scheduler's metrics.

    Args:
        registry: where they are collected.
        waiting: counted at each scrape.

    Attributes:
        decisions: by ``outcome``: bound, pending, rejected, invalid, stale.
    """

    def __init__(
        self, registry: CollectorRegistry, waiting: UnschedulableQueue[RequesterKey]
    ) -> None:
        self.decisions = Counter(
            "kubeshare_scheduler_decisions",
            "Decisions about SharePods",
            ["outcome"],
            registry=registry,
        )
        Gauge(
            "kubeshare_scheduler_waiting",
            "Those that wait for room",
            registry=registry,
        ).set_function(waiting.__len__)
