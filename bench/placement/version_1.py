"""The published scheduler's method: scan all SharePods for each decision.

Each decision builds its view of the cluster from all SharePods: their annotations are parsed and
added up by node and GPU, then every GPU is compared. It serves to show how its cost grows, in
Python like the policy that it is compared with; the published scheduler is written in Go.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node

SharePod: TypeAlias = Mapping[str, str]
"""Its node, GPUID and annotations."""


class _Gpu:
    """What is left of a GPU, and the labels on it."""

    def __init__(self, memory: int) -> None:
        self.compute = 1.0
        self.memory = memory
        self.affinity: set[str] = set()
        self.anti_affinity: set[str] = set()
        self.exclusion: set[str] = set()


def sharepods(devices: Sequence[Device]) -> list[SharePod]:
    """The SharePods that hold these devices."""
    return [
        {
            "node": device.node,
            "gpuid": device.id,
            "gpu_request": str(holder.request_micros / 1_000_000),
            "gpu_mem": str(holder.memory_bytes),
            "affinity": holder.affinity,
            "anti_affinity": holder.anti_affinity,
            "exclusion": holder.exclusion,
        }
        for device in devices
        for holder in device.holders
    ]


def decide(
    nodes: Sequence[Node], pods: Sequence[SharePod], gpu_memory: int, demand: Demand
) -> tuple[str, str] | None:
    """The node and GPUID of the GPU that fits closest, or None."""
    view: dict[str, dict[str, _Gpu]] = {node.name: {} for node in nodes}
    for pod in pods:
        gpus = view[pod["node"]]
        gpu = gpus.get(pod["gpuid"])
        if gpu is None:
            gpu = gpus[pod["gpuid"]] = _Gpu(gpu_memory)
        gpu.compute -= float(pod["gpu_request"])
        gpu.memory -= int(pod["gpu_mem"])
        gpu.affinity.add(pod["affinity"])
        gpu.anti_affinity.add(pod["anti_affinity"])
        gpu.exclusion.add(pod["exclusion"])
    request, memory = demand.request_micros / 1_000_000, demand.memory.on(gpu_memory)
    best: tuple[float, str, str] | None = None
    for node, gpus in view.items():
        for gpuid, gpu in gpus.items():
            if demand.affinity and demand.affinity not in gpu.affinity:
                continue
            if demand.anti_affinity and demand.anti_affinity in gpu.anti_affinity:
                continue
            if gpu.exclusion != {demand.exclusion}:
                continue
            if gpu.compute < request or gpu.memory < memory:
                continue
            if best is None or gpu.compute < best[0]:
                best = gpu.compute, node, gpuid
    return best[1:] if best else None
