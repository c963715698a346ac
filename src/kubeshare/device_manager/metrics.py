"""The device manager's own counters."""

from prometheus_client import CollectorRegistry, Counter


class Metrics:
    """The device manager's metrics.

    Args:
        registry: where they are collected.

    Attributes:
        placeholders: placeholder pods created.
        pods: pods of SharePods created.
        released: holders removed because their pod never ran and nothing wants them any more.
        moved: pods deleted unbound because their node had no room.
        deleted: vGPUs returned to Kubernetes.
        warmed: vGPUs created ahead of demand.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, description: str) -> Counter:
            return Counter(f"kubeshare_devices_{name}", description, registry=registry)

        self.placeholders = counter("placeholders_created", "Placeholder pods made")
        self.pods = counter("pods_created", "Pods of SharePods made")
        self.released = counter("holders_released", "Holders removed whose pod never ran")
        self.moved = counter("pods_moved", "Pods deleted unbound because their node had no room")
        self.deleted = counter("vgpus_deleted", "vGPUs given back to Kubernetes")
        self.warmed = counter("vgpus_warmed", "vGPUs made ahead of demand")
