"""Finds demands that no GPU here could satisfy even when empty."""

from collections import Counter
from collections.abc import Collection, Iterable

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.ledger import Ledger


def infeasible(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field that makes a demand infeasible in this cluster, and why; None if none."""
    known = kinds(ledger)
    found = infeasible_on_all(known, demand)
    if found:
        return found
    if known and demand.count > 1:
        most = most_on_a_node(ledger.devices.values(), ledger, demand)
        if demand.count > most:
            return "count", f"{demand.count} GPUs asked, and no node has more than {most} that do"
    return None


def infeasible_together(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field ``shares`` if no node has as many GPUs as the different shares need, and why."""
    needed = demand.different_gpus()
    most = most_on_a_node(ledger.devices.values(), ledger, demand)
    if needed <= most or not kinds(ledger):
        return None
    return "shares", f"{needed} different GPUs asked, and no node has more than {most} of one model"


def infeasible_on_all(kinds: Collection[FreeGpu], demand: Demand) -> tuple[str, str] | None:
    """The field that makes a demand infeasible on all these kinds of GPUs, and why."""
    if not kinds:
        # The GPUs of the cluster are not known yet.
        return None
    sizes = [kind.memory_bytes for kind in kinds if demand.model in ("", kind.model)]
    if not sizes:
        return "model", f"no GPU of model {demand.model} in this cluster"
    largest = max(sizes)
    requested = demand.memory.on(largest)
    if requested > largest:
        has, wants = reasons.two_sizes(largest, requested)
        return "memory", f"{wants} asked, and the largest GPU has {has}"
    return None


def kinds(ledger: Ledger) -> set[FreeGpu]:
    """The kinds of all GPUs of a cluster, in use or not."""
    shared = {FreeGpu(device.model, device.memory_bytes) for device in ledger.devices.values()}
    return shared.union(*(node.kinds.union(node.free) for node in ledger.nodes.values()))


def most_on_a_node(devices: Iterable[Device], ledger: Ledger, demand: Demand) -> int:
    """The most GPUs of one model and sufficient size on one node, in use or not."""
    found: Counter[tuple[str, str]] = Counter()
    known: Counter[str] = Counter()
    for device in devices:
        known[device.node] += 1
        found[device.node, device.model] += _is_suitable(device.model, device.memory_bytes, demand)
    for node in ledger.nodes.values():
        known[node.name] += len(node.free)
        for gpu in node.free:
            found[node.name, gpu.model] += _is_suitable(gpu.model, gpu.memory_bytes, demand)
        # The remaining GPUs are in use elsewhere, and may be of any kind of the node.
        rest = max(0, node.total - known[node.name])
        for model in {kind.model for kind in node.kinds if _is_suitable(*_of(kind), demand)}:
            found[node.name, model] = max(1, found[node.name, model] + rest)
    return max(found.values(), default=0)


def _of(kind: FreeGpu) -> tuple[str, int]:
    return kind.model, kind.memory_bytes


def _is_suitable(model: str, memory: int, demand: Demand) -> bool:
    return demand.model in ("", model) and demand.memory.on(memory) <= memory
