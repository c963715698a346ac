"""Prometheus metrics of containers that are bound to CPUs."""

from collections.abc import Iterator

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.core.topology.cpus import Cpus, format_cpu_list


class BoundContainer(Struct, frozen=True):
    """A container and the CPUs that it is bound to."""

    namespace: str
    pod: str
    container: str
    cpus: Cpus


class CpuMetrics(Collector):
    """Metrics of one node.

    Attributes:
        bound: the containers that are bound at present.
    """

    def __init__(self) -> None:
        self.bound: tuple[BoundContainer, ...] = ()

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metrics for collection."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The number of CPUs of each bound container, and their list as a label."""
        now = GaugeMetricFamily(
            "kubeshare_node_bound_cpus",
            "CPUs near its GPUs that a container is bound to",
            labels=["namespace", "pod", "container", "cpus"],
        )
        for each in self.bound:
            labels = (each.namespace, each.pod, each.container, format_cpu_list(each.cpus))
            now.add_metric(labels, len(each.cpus))
        yield now
