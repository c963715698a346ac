"""The extender's own metrics."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 15)

OUTCOMES: Final = ("bound", "refused", "failed")


class Metrics:
    """Registers the metrics.

    Args:
        registry: collects them.

    Attributes:
        seconds: of requests, from head to answer, by ``verb`` (``other`` for unknown paths) and
            HTTP status (``code``).
        binds: by ``outcome``: bound, refused (there is no room, or the call is wrong), failed (the
            API server does not answer).
        policy_failures: decisions that a placement policy failed to make.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "kubeshare_extender_request_seconds",
            "Time of a request of kube-scheduler, from its head to the answer",
            ["verb", "code"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.binds = Counter(
            "kubeshare_extender_binds",
            "Calls to bind a pod, by their outcome",
            ["outcome"],
            registry=registry,
        )
        self.policy_failures = Counter(
            "kubeshare_extender_policy_failures",
            "Decisions that a placement policy failed to make: it raised an error, or chose what "
            "does not fit",
            registry=registry,
        )
        for outcome in OUTCOMES:
            self.binds.labels(outcome)
