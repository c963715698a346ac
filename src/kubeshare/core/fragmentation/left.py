"""What is left of a ledger's GPUs, by node and model."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from kubeshare.core.fragmentation.measure import GpuLeft, NodeLeft
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS


def node_left(ledger: Ledger, name: str, cpu_millis: int | None = None) -> list[NodeLeft]:
    """What is left of a node, once for each model; GPUs that take no holder do not count.

    Args:
        ledger: of the cluster.
        name: the node; of one that is not there nothing is left.
        cpu_millis: what is left of its CPUs; None if they do not count.
    """
    node = ledger.nodes.get(name)
    if node is None:
        return []
    left: defaultdict[str, list[GpuLeft]] = defaultdict(list)
    for device in ledger.index(NodeDevices).on(name):
        if device.healthy and not device.fenced:
            compute, memory = max(0, device.compute_left), max(0, device.memory_left)
            left[device.model].append(GpuLeft(compute, memory, device.memory_bytes))
    for kind in node.free:
        left[kind.model].append(GpuLeft(MICROS, kind.memory_bytes, kind.memory_bytes))
    return [NodeLeft(tuple(sorted(gpus)), model, cpu_millis) for model, gpus in left.items()]


def nodes_left(ledger: Ledger, cpu_millis: Callable[[str], int | None]) -> Iterator[NodeLeft]:
    """What is left of all nodes.

    Args:
        ledger: of the cluster.
        cpu_millis: what is left of the CPUs of a node by its name; None if they do not count.
    """
    for name in ledger.nodes:
        yield from node_left(ledger, name, cpu_millis(name))
