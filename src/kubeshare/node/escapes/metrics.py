"""What uses GPUs past the device library, in numbers."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.node.escapes.detection import Finding


class EscapeMetrics(Collector):
    """Metrics of one node.

    Args:
        present: what is found now.

    Attributes:
        told: findings, by ``reason``; what lasts counts again when it is told again.
        ended: processes ended, by ``reason``.
    """

    def __init__(self, present: Callable[[], Iterable[Finding]]) -> None:
        self._present = present
        self.told = _counter("escapes", "Uses of a GPU past the device library that were told of")
        self.ended = _counter("escapes_ended", "Processes ended for using a GPU past the library")

    def register(self, registry: CollectorRegistry) -> None:
        """Have them collected."""
        for metric in (self, self.told, self.ended):
            registry.register(metric)

    def collect(self) -> Iterator[Metric]:
        """What is found now, by pod."""
        now = GaugeMetricFamily(
            "kubeshare_node_escaping",
            "Uses of a GPU past the device library at present",
            labels=["reason", "namespace", "pod"],
        )
        tally = Tally((one.reason, one.pod.namespace, one.pod.name) for one in self._present())
        for labels, count in tally.items():
            now.add_metric(labels, count)
        yield now


def _counter(name: str, what: str) -> Counter:
    return Counter(f"kubeshare_node_{name}", what, ["reason"], registry=None)
