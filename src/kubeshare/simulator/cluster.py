"""Clusters to simulate: equal nodes, or those of a trace."""

from collections.abc import Iterable

import msgspec

from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.simulator.engine.host_room import HostCapacity, HostRoom
from kubeshare.simulator.errors import SimulationError

MAX_GPUS = 1_000_000
"""The most GPUs of a simulated cluster."""


class SimulatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        name: its name.
        gpus: how many GPUs it has, all of one kind.
        kind: the model and memory of each.
        host: its CPU and memory; None if the simulation ignores them.
    """

    name: str
    gpus: int
    kind: FreeGpu
    host: HostCapacity | None = None


def equal_nodes(
    count: int, gpus_each: int, kind: FreeGpu, host: HostCapacity | None = None
) -> list[SimulatedNode]:
    """Nodes ``n1``, ``n2``, … with as many equal GPUs each.

    Raises:
        SimulationError: there is no GPU, or there are too many.
    """
    if count < 1 or gpus_each < 1:
        raise SimulationError("the cluster has no GPU: it needs a node with one")
    if count * gpus_each > MAX_GPUS:
        raise SimulationError(f"{count * gpus_each} GPUs are more than {MAX_GPUS}")
    return [
        SimulatedNode(name=f"n{number}", gpus=gpus_each, kind=kind, host=host)
        for number in range(1, count + 1)
    ]


class Cluster(msgspec.Struct, frozen=True):
    """The empty ledger of a cluster; CPU and memory of its nodes, None if they are ignored."""

    ledger: Ledger
    room: HostRoom | None


def build_cluster(nodes: Iterable[SimulatedNode], *, owned: bool) -> Cluster:
    """An empty cluster.

    Args:
        nodes: its nodes.
        owned: whether each GPU is a static vGPU; else they are free, for vGPUs on demand.
    """
    ledger = Ledger()
    capacity: dict[str, HostCapacity] = {}
    for node in nodes:
        free = () if owned else (node.kind,) * node.gpus
        kinds = frozenset([node.kind]) if node.gpus else frozenset()
        ledger.add_node(Node(name=node.name, free=free, kinds=kinds, total=node.gpus))
        for index in range(node.gpus if owned else 0):
            ledger.add_device(_static(node, index))
        if node.host is not None:
            capacity[node.name] = node.host
    if not capacity:
        return Cluster(ledger, None)
    room = ledger.index(HostRoom)
    room.set_capacity(capacity)
    return Cluster(ledger, room)


def gpu_count(nodes: Iterable[SimulatedNode]) -> int:
    """How many GPUs a cluster has."""
    return sum(node.gpus for node in nodes)


def _static(node: SimulatedNode, index: int) -> Device:
    return Device(
        id=f"{node.name}/{index}",
        node=node.name,
        index=index,
        model=node.kind.model,
        memory_bytes=node.kind.memory_bytes,
    )
