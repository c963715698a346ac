"""The scheduler's own metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.scheduler.requesters.base import RequesterKey


class Metrics:
    """Registers the metrics.

    Args:
        registry: collects them.
        unschedulable: its length is read at each scrape.

    Attributes:
        decisions: by ``outcome``: bound, pending, rejected, invalid, stale.
    """

    def __init__(
        self, registry: CollectorRegistry, unschedulable: UnschedulableQueue[RequesterKey]
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
        ).set_function(unschedulable.__len__)
