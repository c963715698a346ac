"""Prometheus metrics of the node's GPUs."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.node.gpus.inventory import Inventory


class GpuMetrics(Collector):
    """Metrics of one node, as of the last reading.

    Args:
        inventory: has the readings.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metrics for collection."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Health, memory and utilisation of each GPU."""
        healthy = GaugeMetricFamily(
            "kubeshare_node_gpu_healthy",
            "1 if the GPU can run new shares, 0 if its driver reports a fault",
            labels=["gpu", "model"],
        )
        memory = GaugeMetricFamily(
            "kubeshare_node_gpu_memory_bytes", "Memory that the GPU gives out", labels=["gpu"]
        )
        for device in self._inventory.found.devices:
            healthy.add_metric([device.uuid, device.model], float(device.healthy))
            memory.add_metric([device.uuid], device.memory_bytes)
        utilization = GaugeMetricFamily(
            "kubeshare_node_gpu_utilization_ratio",
            "Part of the time in which the GPU ran a kernel, as NVML reports it, 0 to 1",
            labels=["gpu"],
        )
        for uuid, ratio in self._inventory.utilization.items():
            utilization.add_metric([uuid], ratio)
        yield from (healthy, memory, utilization)
