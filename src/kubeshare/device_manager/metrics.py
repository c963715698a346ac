"""The device manager's own metrics."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import failure
from kubeshare.core.units import MICROS


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
        registry.register(_VGPUs(vgpus))


class _VGPUs(Collector):
    """The present vGPUs: how many are used, how much of them, and which are degraded."""

    def __init__(self, vgpus: Callable[[], Iterable[VGPU]]) -> None:
        self._vgpus = vgpus

    def collect(self) -> Iterator[Metric]:
        """The present numbers by node; of those that are degraded also by reason."""
        vgpus = tuple(self._vgpus())
        yield from _used(vgpus)
        yield _degraded(vgpus)


def _used(vgpus: Sequence[VGPU]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "kubeshare_devices_vgpus",
        "vGPUs, each of which stands for one GPU: used, which have holders, and idle",
        labels=["node", "state"],
    )
    requested = GaugeMetricFamily(
        "kubeshare_devices_requested_gpus",
        "GPUs that all shares of a node's vGPUs have requested together",
        labels=["node"],
    )
    used: Tally[str] = Tally()
    idle: Tally[str] = Tally()
    micros: Tally[str] = Tally()
    for vgpu in vgpus:
        node, holders = vgpu.spec.node_name, vgpu.status.holders
        (used if holders else idle)[node] += 1
        micros[node] += sum(holder.request_micros for holder in holders)
    for node, total in micros.items():
        states.add_metric([node, "used"], used[node])
        states.add_metric([node, "idle"], idle[node])
        requested.add_metric([node], total / MICROS)
    yield states
    yield requested


def _degraded(vgpus: Sequence[VGPU]) -> Metric:
    now = GaugeMetricFamily(
        "kubeshare_devices_degraded_vgpus",
        "vGPUs with holders that are degraded, by the reason of their condition",
        labels=["node", "reason"],
    )
    tally = Tally(
        (vgpu.spec.node_name, str(problem.reason))
        for vgpu in vgpus
        if vgpu.status.holders and (problem := failure(vgpu))
    )
    for labels, count in tally.items():
        now.add_metric(labels, count)
    return now
