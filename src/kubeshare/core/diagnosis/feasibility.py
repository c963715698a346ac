"""What no GPU of a cluster can ever give, whoever leaves: the difference of "no" and "not now"."""

from collections import Counter
from collections.abc import Collection, Iterable

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.ledger import Ledger


def infeasible(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field by which a demand is impossible in this cluster, and why; None when it is not."""
    known = kinds(ledger)
    impossible = infeasible_on_all(known, demand)
    if impossible:
        return impossible
    if known and demand.count > 1:
        most = most_on_a_node(ledger.devices.values(), ledger, demand)
        if demand.count > most:
            return "count", f"{demand.count} GPUs asked, and no node has more than {most} that do"
    return None


def infeasible_on_all(kinds: Collection[FreeGpu], demand: Demand) -> tuple[str, str] | None:
    """The field by which a GPU of none of these kinds can take a demand, and why."""
    if not kinds:
        # A cluster whose nodes have not been looked at yet says nothing about "ever".
        return None
    sizes = [kind.memory_bytes for kind in kinds if demand.model in ("", kind.model)]
    if not sizes:
        return "model", f"no GPU of model {demand.model} in this cluster"
    largest = max(sizes)
    asked = demand.memory.on(largest)
    if asked > largest:
        has, wants = reasons.two_sizes(largest, asked)
        return "memory", f"{wants} asked, and the largest GPU has {has}"
    return None


def kinds(ledger: Ledger) -> set[FreeGpu]:
    """The kinds of all GPUs of a cluster, in use or not."""
    shared = {FreeGpu(device.model, device.memory_bytes) for device in ledger.devices.values()}
    return shared.union(*(node.kinds.union(node.free) for node in ledger.nodes.values()))


def most_on_a_node(devices: Iterable[Device], ledger: Ledger, demand: Demand) -> int:
    """The most GPUs of one model that a node may have, in use or not, and that are large enough."""
    found: Counter[tuple[str, str]] = Counter()
    known: Counter[str] = Counter()
    for device in devices:
        known[device.node] += 1
        found[device.node, device.model] += _would_do(device.model, device.memory_bytes, demand)
    for node in ledger.nodes.values():
        known[node.name] += len(node.free)
        for gpu in node.free:
            found[node.name, gpu.model] += _would_do(gpu.model, gpu.memory_bytes, demand)
        # Others may have the rest, and give them back: they may be of any kind of the node's.
        rest = max(0, node.total - known[node.name])
        for model in {kind.model for kind in node.kinds if _would_do(*_of(kind), demand)}:
            found[node.name, model] = max(1, found[node.name, model] + rest)
    return max(found.values(), default=0)


def _of(kind: FreeGpu) -> tuple[str, int]:
    return kind.model, kind.memory_bytes


def _would_do(model: str, memory: int, demand: Demand) -> bool:
    return demand.model in ("", model) and demand.memory.on(memory) <= memory
