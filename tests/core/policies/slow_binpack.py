"""Placement by bin packing once more, written from its description and nothing else.

It looks at everything, sorts whole lists, and does its sums anew each time.
"""

from itertools import combinations
from typing import Any

from core.policies.slow_locality import by_name, labels_allow, neighbours_agree, used
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger


def slow_decide(ledger: Ledger, demand: Demand) -> tuple[str, str | None, tuple[str, ...]]:
    """(outcome, node, ids of the devices, sorted)."""
    if rejected(ledger, demand):
        return "rejected", None, ()
    best: tuple[Any, tuple[Device, ...]] | None = None
    for node in ledger.nodes:
        if demand.nodes is not None and node not in demand.nodes:
            continue
        on_node = [device for device in ledger.devices.values() if device.node == node]
        fitting = [device for device in on_node if fits(ledger, device, demand)]
        for devices in combinations(sorted(fitting, key=by_number), demand.count):
            if len({device.model for device in devices}) > 1:
                continue
            # The node that is left with the least; within the node the fullest, one by one.
            left = sum(free(device) for device in devices)
            fullness = sorted((free(device), by_number(device)) for device in devices)
            key = (left, by_name(node), fullness)
            if best is None or key < best[0]:
                best = (key, devices)
    if best is None:
        return "pending", None, ()
    devices = best[1]
    return "bound", devices[0].node, tuple(sorted(device.id for device in devices))


def rejected(ledger: Ledger, demand: Demand) -> bool:
    every = [(device.node, device.model, device.memory_bytes) for device in ledger.devices.values()]
    known = list(every)
    for node in ledger.nodes.values():
        known += [(node.name, gpu.model, gpu.memory_bytes) for gpu in [*node.free, *node.kinds]]
        every += [(node.name, gpu.model, gpu.memory_bytes) for gpu in node.free]
    if not known:
        return False
    if not any(large_enough(model, memory, demand) for _, model, memory in known):
        return True
    groups = [(node, model) for node, model, memory in every if large_enough(model, memory, demand)]
    return demand.count > 1 and all(groups.count(group) < demand.count for group in groups)


def large_enough(model: str, memory: int, demand: Demand) -> bool:
    return demand.model in {model, ""} and demand.memory.on(memory) <= memory


def fits(ledger: Ledger, device: Device, demand: Demand) -> bool:
    if not demand.device_id and not labels_allow(ledger, device, demand):
        return False
    if not neighbours_agree(ledger, device, demand):
        return False
    if not device.healthy or device.fenced or len(device.holders) == 128:
        return False
    if demand.model and demand.model != device.model:
        return False
    if demand.device_id and demand.device_id != device.id:
        return False
    compute, memory = used(device)
    asked = demand.memory.on(device.memory_bytes)
    share = (
        asked * 1_000_000 // device.memory_bytes if demand.proportional else demand.request_micros
    )
    return compute + share <= 1_000_000 and memory + asked <= device.memory_bytes


def free(device: Device) -> int:
    return device.memory_bytes - used(device)[1]


def by_number(device: Device) -> list[tuple[bool, int, str]]:
    return by_name(device.id if device.index is None else str(device.index))
