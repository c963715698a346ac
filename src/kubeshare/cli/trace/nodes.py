"""The nodes of a live cluster, as those of a simulation."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kubeshare.api.predicates.pod_requests import amounts
from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import GPUNode
from kubeshare.cli.trace.pseudonyms import Pseudonyms
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.engine.host_room import HostCapacity


def simulated_nodes(
    nodes: Iterable[Node], gpunodes: Iterable[GPUNode], pseudonyms: Pseudonyms
) -> list[SimulatedNode]:
    """The nodes with healthy GPUs, with what they can give of CPU and memory.

    A node with different GPUs becomes one for each kind, with its part of CPU and memory. Where
    one node does not report CPU and memory, none has them.

    Args:
        nodes: of the cluster.
        gpunodes: their GPUs.
        pseudonyms: of their names.
    """
    by_name = {node.metadata.name: node for node in nodes}
    found: list[SimulatedNode] = []
    for gpunode in gpunodes:
        node = by_name.get(gpunode.metadata.name)
        if node is not None:
            found += _kinds(node, gpunode, pseudonyms)
    if all(node.host is not None for node in found):
        return found
    return [msgspec.structs.replace(node, host=None) for node in found]


def usual_gpu_bytes(nodes: Iterable[SimulatedNode], default: int) -> int:
    """The memory that most GPUs have."""
    sizes: Counter[int] = Counter()
    for node in nodes:
        sizes[node.kind.memory_bytes] += node.gpus
    return max(sizes, key=lambda size: (sizes[size], -size), default=default)


def _kinds(node: Node, gpunode: GPUNode, pseudonyms: Pseudonyms) -> Iterable[SimulatedNode]:
    kinds = Counter(
        FreeGpu(device.model, device.memory_bytes)
        for device in gpunode.spec.devices
        if device.gives_shares and device.memory_bytes
    )
    for kind, gpus in sorted(kinds.items(), key=lambda each: (each[0].model, each[0].memory_bytes)):
        words = (kind.model, str(kind.memory_bytes)) if len(kinds) > 1 else ()
        yield SimulatedNode(
            name=pseudonyms.of(node.metadata.name, *words),
            gpus=gpus,
            kind=kind,
            host=_host(node.status.allocatable, kind.model, gpus, kinds.total()),
        )


def _host(
    allocatable: Mapping[str, str | int], model: str, gpus: int, of: int
) -> HostCapacity | None:
    has = amounts(allocatable)
    if not has["cpu"] or not has["memory"]:
        return None
    return HostCapacity(
        cpu_millis=has["cpu"] * gpus // of,
        memory_bytes=has["memory"] // 1000 * gpus // of,
        model=model,
    )
