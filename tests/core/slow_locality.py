"""Placement by locality once more, written from its description and nothing else.

It looks at everything, sorts whole lists, and does its sums anew each time. It
shares no code with the real policy but the plain data that both look at.
"""

import re

from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, Node
from kubeshare.core.ledger import Ledger


def slow_decide(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    """(outcome, node, device id); the id is "new" for a vGPU with a generated one."""
    if rejected(ledger, demand):
        return "rejected", None, None
    devices = [device for device in ledger.devices.values() if usable(ledger, device, demand)]
    candidates = [device for device in devices if feasible(device, demand)]
    if demand.device_id:
        named = [device for device in candidates if device.id == demand.device_id]
        known = demand.device_id in ledger.devices
        return first(named) if known else new(ledger, demand)
    if demand.affinity:
        idle = [device for device in candidates if not device.holders]
        labelled = [device for device in candidates if demand.affinity in affinities(device)]
        if any(demand.affinity in affinities(device) for device in ledger.devices.values()):
            return first(worst_fit(labelled))
        return first(best_fit(idle)) if idle else new(ledger, demand)
    plain = [device for device in candidates if not affinities(device)]
    if candidates:
        return first(best_fit(plain) if plain else worst_fit(candidates))
    return new(ledger, demand)


def rejected(ledger: Ledger, demand: Demand) -> bool:
    kinds = [(device.model, device.memory) for device in ledger.devices.values()]
    for node in ledger.nodes.values():
        kinds += [(gpu.model, gpu.memory) for gpu in [*node.free, *node.kinds]]
    if demand.count > 1:
        return True
    if demand.device_id.startswith("vgpu-") and demand.device_id not in ledger.devices:
        return True
    suitable = [
        total
        for model, total in kinds
        if (demand.model in {model, ""}) and demand.memory.on(total) <= total
    ]
    return bool(kinds) and not suitable


def usable(ledger: Ledger, device: Device, demand: Demand) -> bool:
    if device.node not in ledger.nodes or not device.healthy or device.fenced:
        return False
    return demand.nodes is None or device.node in demand.nodes


def feasible(device: Device, demand: Demand) -> bool:
    if demand.model and device.model != demand.model:
        return False
    for holder in device.holders:
        if holder.exclusion != demand.exclusion:
            return False
        if demand.anti_affinity and holder.anti_affinity == demand.anti_affinity:
            return False
    if len(device.holders) == 128:
        return False
    compute, memory = used(device)
    memory_asked = demand.memory.on(device.memory)
    return compute + demand.request <= 1_000_000 and memory + memory_asked <= device.memory


def used(device: Device) -> tuple[int, int]:
    compute = memory = 0
    for holder in device.holders:
        compute += holder.request
        memory += holder.memory
    return compute, memory


def affinities(device: Device) -> set[str]:
    return {holder.affinity for holder in device.holders} - {""}


def by_id(device: Device) -> list[tuple[bool, int, str]]:
    return by_name(device.id)


def by_name(text: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", text)
    return [
        (not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part
    ]


def best_fit(devices: list[Device]) -> list[Device]:
    """Most used first; what is used of different sizes is compared by what is left."""
    ordered = sorted(devices, key=by_id)
    ordered.sort(key=lambda device: device.memory - used(device)[1])
    ordered.sort(key=lambda device: 1_000_000 - used(device)[0])
    return ordered


def worst_fit(devices: list[Device]) -> list[Device]:
    ordered = sorted(devices, key=by_id)
    ordered.sort(key=lambda device: device.memory - used(device)[1], reverse=True)
    ordered.sort(key=lambda device: 1_000_000 - used(device)[0], reverse=True)
    return ordered


def first(devices: list[Device]) -> tuple[str, str | None, str | None]:
    return ("bound", devices[0].node, devices[0].id) if devices else ("pending", None, None)


def new(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    def has_one(node: Node) -> bool:
        return any(
            demand.model in {gpu.model, ""} and demand.memory.on(gpu.memory) <= gpu.memory
            for gpu in node.free
        )

    nodes = [
        node
        for node in ledger.nodes.values()
        if has_one(node) and (demand.nodes is None or node.name in demand.nodes)
    ]
    nodes.sort(key=lambda node: by_name(node.name))
    nodes.sort(key=lambda node: len(node.free))
    return ("bound", nodes[0].name, demand.device_id or "new") if nodes else ("pending", None, None)
