"""What is left of the GPUs of a ledger, by node and model."""

from collections import defaultdict
from collections.abc import Callable

from kubeshare.core.fragmentation.measure import GpuLeft, NodeLeft
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS


def nodes_left(
    ledger: Ledger, cpu_millis: Callable[[str], int | None] = lambda _: None
) -> list[NodeLeft]:
    """What is left of each node; GPUs that take no holder do not count.

    Args:
        ledger: nodes and GPUs, in use or not.
        cpu_millis: what is left of the CPUs of a node by its name; None if they do not count.
    """
    left: defaultdict[tuple[str, str], list[GpuLeft]] = defaultdict(list)
    for device in ledger.devices.values():
        if device.healthy and not device.fenced and device.node in ledger.nodes:
            gpu = GpuLeft(
                max(0, device.compute_left), max(0, device.memory_left), device.memory_bytes
            )
            left[device.node, device.model].append(gpu)
    for node in ledger.nodes.values():
        for kind in node.free:
            gpu = GpuLeft(MICROS, kind.memory_bytes, kind.memory_bytes)
            left[node.name, kind.model].append(gpu)
    return [
        NodeLeft(tuple(gpus), model, cpu_millis(name)) for (name, model), gpus in left.items()
    ]
