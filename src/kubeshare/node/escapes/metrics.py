"""Prometheus metrics of processes that bypass the device library."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.node.escapes.detection import REASONS, Finding


class EscapeMetrics(Collector):
    """Metrics of one node.

    Args:
        present: returns the present findings.

    Attributes:
        reported: findings, by ``reason``; one that lasts counts each time it is reported.
        ended: processes that were killed, by ``reason``.
    """

    def __init__(self, present: Callable[[], Iterable[Finding]]) -> None:
        self._present = present
        self.reported = _counter(
            "escapes", "Uses of a GPU past the device library that were reported"
        )
        self.ended = _counter("escapes_ended", "Processes ended for using a GPU past the library")

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metrics for collection."""
        for metric in (self, self.reported, self.ended):
            registry.register(metric)

    def collect(self) -> Iterator[Metric]:
        """The present findings, by pod."""
        now = GaugeMetricFamily(
            "kubeshare_node_escaping",
            "Uses of a GPU past the device library at present",
            labels=["reason", "namespace", "pod"],
        )
        tally = Tally((one.reason, one.pod.namespace, one.pod.name) for one in self._present())
        for labels, count in tally.items():
            now.add_metric(labels, count)
        yield now


def _counter(name: str, text: str) -> Counter:
    counter = Counter(f"kubeshare_node_{name}", text, ["reason"], registry=None)
    for reason in REASONS:
        counter.labels(reason)
    return counter
