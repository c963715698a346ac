"""Placement by bin packing once more, written from its description and nothing else.

It looks at everything, sorts whole lists, and does its sums anew each time.
"""

from itertools import combinations
from typing import Any

from core.policies.slow_locality import (
    by_name,
    labels_allow,
    must_join,
    neighbours_agree,
    used,
)
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger


def slow_decide(ledger: Ledger, demand: Demand) -> tuple[str, str | None, tuple[str, ...]]:
    """(outcome, node, ids of the devices, sorted, "new" for one with a generated id)."""
    if rejected(ledger, demand):
        return "rejected", None, ()
    options: list[tuple[Any, str, list[str]]] = []
    for node in ledger.nodes.values():
        if demand.nodes is not None and node.name not in demand.nodes:
            continue
        on_node = [device for device in ledger.devices.values() if device.node == node.name]
        fitting = [device for device in on_node if fits(ledger, device, demand)]
        free = [gpu for gpu in node.free if large_enough(gpu.model, gpu.memory_bytes, demand)]
        if is_known(ledger, demand) or must_join(ledger, demand):
            free = []
        for opened in range(demand.count + 1):
            for devices in combinations(fitting, demand.count - opened):
                for gpus in combinations(free, opened):
                    models = {device.model for device in devices} | {gpu.model for gpu in gpus}
                    if len(models) > 1:
                        continue
                    # As few new ones as possible, then what is left in all, then the node.
                    left = sum(map(free_of, devices)) + sum(gpu.memory_bytes for gpu in gpus)
                    fullness = sorted((free_of(device), by_number(device)) for device in devices)
                    kinds = sorted((gpu.model, gpu.memory_bytes) for gpu in gpus)
                    ids = [device.id for device in devices]
                    ids += [demand.device_id or "new"] * opened
                    key = (opened, left, by_name(node.name), fullness, kinds)
                    options.append((key, node.name, sorted(ids)))
    if not options:
        return "pending", None, ()
    _, name, ids = min(options)
    return "bound", name, tuple(ids)


def rejected(ledger: Ledger, demand: Demand) -> bool:
    if demand.device_id and demand.count > 1:
        return True
    if demand.device_id.startswith("vgpu-") and not is_known(ledger, demand):
        return True
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
    if demand.device_id and not is_named(device, demand):
        return False
    compute, memory = used(device)
    asked = demand.memory.on(device.memory_bytes)
    share = (
        asked * 1_000_000 // device.memory_bytes if demand.proportional else demand.request_micros
    )
    return compute + share <= 1_000_000 and memory + asked <= device.memory_bytes


def free_of(device: Device) -> int:
    return device.memory_bytes - used(device)[1]


def by_number(device: Device) -> list[tuple[bool, int, str]]:
    """By its number on the node where that is known, else by its name."""
    number = device.number
    return by_name(device.gpuid or device.id if number is None else str(number))


def is_known(ledger: Ledger, demand: Demand) -> bool:
    """Whether a GPU of the name that was asked for exists."""
    return any(is_named(device, demand) for device in ledger.devices.values())


def is_named(device: Device, demand: Demand) -> bool:
    name = device.gpuid or device.id if device.index is None else str(device.index)
    return bool(demand.device_id) and name == demand.device_id
