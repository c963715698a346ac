"""The device manager's own metrics."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import failure


class Metrics:
    """The device manager's metrics.

    Args:
        registry: where they are collected.
        vgpus: all vGPUs, read at each scrape.

    Attributes:
        placeholders: placeholder pods created.
        pods: pods of SharePods created.
        released: holders removed because their pod never ran and nothing wants them any more.
        moved: pods deleted unbound because their node had no room.
        deleted: vGPUs returned to Kubernetes.
        warmed: vGPUs created ahead of demand.
    """

    def __init__(
        self, registry: CollectorRegistry, vgpus: Callable[[], Iterable[VGPU]] = tuple
    ) -> None:
        def counter(name: str, description: str) -> Counter:
            return Counter(f"kubeshare_devices_{name}", description, registry=registry)

        self.placeholders = counter("placeholders_created", "Placeholder pods made")
        self.pods = counter("pods_created", "Pods of SharePods made")
        self.released = counter("holders_released", "Holders removed whose pod never ran")
        self.moved = counter("pods_moved", "Pods deleted unbound because their node had no room")
        self.deleted = counter("vgpus_deleted", "vGPUs given back to Kubernetes")
        self.warmed = counter("vgpus_warmed", "vGPUs made ahead of demand")
        registry.register(_DegradedVGPUs(vgpus))


class _DegradedVGPUs(Collector):
    """The vGPUs with holders whose GPU has failed, or that another system gives out as well."""

    def __init__(self, vgpus: Callable[[], Iterable[VGPU]]) -> None:
        self._vgpus = vgpus

    def collect(self) -> Iterator[Metric]:
        """The present number by node and reason of the condition."""
        now = GaugeMetricFamily(
            "kubeshare_devices_degraded_vgpus",
            "vGPUs with holders that are degraded, by the reason of their condition",
            labels=["node", "reason"],
        )
        tally = Tally(
            (vgpu.spec.node_name, str(problem.reason))
            for vgpu in self._vgpus()
            if vgpu.status.holders and (problem := failure(vgpu))
        )
        for labels, count in tally.items():
            now.add_metric(labels, count)
        yield now
