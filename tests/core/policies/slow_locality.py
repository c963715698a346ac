"""Placement by locality once more, written from its description and nothing else.

It looks at everything, sorts whole lists, and does its sums anew each time. It
shares no code with the real policy but the plain data that both look at.
"""

import re

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger


def slow_decide(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    """(outcome, node, device id); the id is "new" for a vGPU with a generated one."""
    if rejected(ledger, demand):
        return "rejected", None, None
    return several(ledger, demand) if demand.count > 1 else single(ledger, demand)


def single(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    devices = [device for device in ledger.devices.values() if usable(ledger, device, demand)]
    candidates = [device for device in devices if feasible(ledger, device, demand)]
    if demand.device_id:
        named = [device for device in candidates if is_named(device, demand)]
        if not any(is_named(device, demand) for device in ledger.devices.values()):
            return new(ledger, demand)
        plain = [device for device in named if not affinities(device)]
        return first(best_fit(plain) if plain else worst_fit(named))
    if demand.affinity:
        idle = [device for device in candidates if not device.holders]
        labelled = [device for device in candidates if carries(ledger, device, demand)]
        if any(carries(ledger, device, demand) for device in ledger.devices.values()):
            return first(worst_fit(labelled))
        return first(best_fit(idle)) if idle else new(ledger, demand)
    plain = [device for device in candidates if not affinities(device)]
    if candidates:
        return first(best_fit(plain) if plain else worst_fit(candidates))
    return new(ledger, demand)


def rejected(ledger: Ledger, demand: Demand) -> bool:
    kinds = [(device.model, device.memory_bytes) for device in ledger.devices.values()]
    for node in ledger.nodes.values():
        kinds += [(gpu.model, gpu.memory_bytes) for gpu in [*node.free, *node.kinds]]
    if demand.count > 1 and demand.device_id:
        return True
    named = any(is_named(device, demand) for device in ledger.devices.values())
    if demand.device_id.startswith("vgpu-") and not named:
        return True
    suitable = [
        total
        for model, total in kinds
        if (demand.model in {model, ""}) and demand.memory.on(total) <= total
    ]
    if kinds and not suitable:
        return True
    return bool(kinds) and demand.count > 1 and not enough_on_a_node(ledger, demand)


def enough_on_a_node(ledger: Ledger, demand: Demand) -> bool:
    """A node has enough GPUs of one model, in use or not; nothing else is known to be there."""
    names = {device.node for device in ledger.devices.values()} | set(ledger.nodes)
    for name in names:
        gpus = [
            (each.model, each.memory_bytes) for each in ledger.devices.values() if each.node == name
        ]
        if name in ledger.nodes:
            gpus += [(gpu.model, gpu.memory_bytes) for gpu in ledger.nodes[name].free]
        for wanted in {model for model, _ in gpus}:
            large = [
                1 for model, total in gpus if model == wanted and demand.memory.on(total) <= total
            ]
            if demand.model in {wanted, ""} and len(large) >= demand.count:
                return True
    return False


def several(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    """All sets of GPUs of one node and model; the ids of the best, with "new" for new ones."""
    carriers = [device for device in ledger.devices.values() if carries(ledger, device, demand)]
    options: list[tuple[list[object], str, list[str]]] = []
    for node in ledger.nodes.values():
        if demand.nodes is not None and node.name not in demand.nodes:
            continue
        here = [
            device
            for device in ledger.devices.values()
            if device.node == node.name
            and usable(ledger, device, demand)
            and feasible(ledger, device, demand)
        ]
        free = list(node.free)
        if demand.affinity and carriers:
            here, free = [device for device in here if device in carriers], []
        elif demand.affinity:
            here = [device for device in here if not device.holders]
        models = {device.model for device in here} | {gpu.model for gpu in free}
        for model in models:
            if demand.model not in {model, ""}:
                continue
            plain = best_fit([d for d in here if d.model == model and not affinities(d)])
            labelled = worst_fit([d for d in here if d.model == model and affinities(d)])
            new = [
                gpu
                for gpu in free
                if gpu.model == model and demand.memory.on(gpu.memory_bytes) <= gpu.memory_bytes
            ]
            line = [*plain, *labelled, *new][: demand.count]
            if len(line) < demand.count:
                continue
            taken = [each for each in line if isinstance(each, Device)]
            opened = demand.count - len(taken)
            rank: list[object] = [opened, sum(bool(affinities(each)) for each in taken)]
            rank += [[left(each) for each in taken if not affinities(each)]]
            rank += [[minus(left(each)) for each in taken if affinities(each)]]
            rank += [len(node.free) if opened else 0, by_name(node.name), by_name(model)]
            options.append((rank, node.name, sorted(each.id for each in taken) + ["new"] * opened))
    if not options:
        return "pending", None, None
    _, name, ids = min(options)
    return "bound", name, ",".join(ids)


def left(device: Device) -> tuple[int, int, list[tuple[bool, int, str]]]:
    compute, memory = used(device)
    return 1_000_000 - compute, device.memory_bytes - memory, by_id(device)


def minus(place: tuple[int, int, list[tuple[bool, int, str]]]) -> tuple[object, ...]:
    return -place[0], -place[1], place[2]


def usable(ledger: Ledger, device: Device, demand: Demand) -> bool:
    if device.node not in ledger.nodes or not device.healthy or device.fenced:
        return False
    return demand.nodes is None or device.node in demand.nodes


def feasible(ledger: Ledger, device: Device, demand: Demand) -> bool:
    if demand.model and device.model != demand.model:
        return False
    if not neighbours_agree(ledger, device, demand):
        return False
    if len(device.holders) == 128:
        return False
    compute, memory = used(device)
    memory_asked = demand.memory.on(device.memory_bytes)
    return (
        compute + demand.request_micros <= 1_000_000
        and memory + memory_asked <= device.memory_bytes
    )


def neighbours_agree(ledger: Ledger, device: Device, demand: Demand) -> bool:
    """Exclusion labels are equal, anti-affinity labels differ."""
    for holder in device.holders:
        if label(ledger, holder, "exclusion") != label(ledger, demand, "exclusion"):
            return False
        repels = label(ledger, demand, "anti_affinity")
        if repels and label(ledger, holder, "anti_affinity") == repels:
            return False
    return True


def labels_allow(ledger: Ledger, device: Device, demand: Demand) -> bool:
    """All three rules of labels, as every policy applies them."""
    if demand.affinity:
        if any(carries(ledger, each, demand) for each in ledger.devices.values()):
            if not carries(ledger, device, demand):
                return False
        elif device.holders:
            return False
    return neighbours_agree(ledger, device, demand)


def must_join(ledger: Ledger, demand: Demand) -> bool:
    """A vGPU has the affinity label already, so the demand opens none."""
    carried = any(carries(ledger, each, demand) for each in ledger.devices.values())
    return carried and not demand.device_id


def carries(ledger: Ledger, device: Device, demand: Demand) -> bool:
    wanted = label(ledger, demand, "affinity")
    return any(wanted and label(ledger, each, "affinity") == wanted for each in device.holders)


def label(ledger: Ledger, bearer: Demand | Holder, kind: str) -> tuple[str, ...]:
    """A label, with its namespace if that matters; empty if absent."""
    text = getattr(bearer, kind)
    if bearer.labels_qualified:
        text = text.partition("/")[2]
    if not text:
        return ()
    return (bearer.namespace, text) if ledger.label_scope == "namespace" else (text,)


def used(device: Device) -> tuple[int, int]:
    compute = memory = 0
    for holder in device.holders:
        compute += holder.request_micros
        memory += holder.memory_bytes
    return compute, memory


def affinities(device: Device) -> set[str]:
    return {holder.affinity for holder in device.holders} - {""}


def is_named(device: Device, demand: Demand) -> bool:
    """Whether it has the GPUID that was asked for, on a node that was asked for."""
    here = demand.device_nodes is None or device.node in demand.device_nodes
    return here and (device.gpuid or device.id) == demand.device_id


def by_id(device: Device) -> list[tuple[bool, int, str]]:
    """By GPUID, then by node; shorter ones of two that begin alike come first."""
    separator = (False, -1, "")
    return [*by_name(device.gpuid or device.id), separator, *by_name(device.node)]


def by_name(text: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", text)
    return [
        (not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part
    ]


def best_fit(devices: list[Device]) -> list[Device]:
    """Most used first; what is used of different sizes is compared by what is left."""
    ordered = sorted(devices, key=by_id)
    ordered.sort(key=lambda device: device.memory_bytes - used(device)[1])
    ordered.sort(key=lambda device: 1_000_000 - used(device)[0])
    return ordered


def worst_fit(devices: list[Device]) -> list[Device]:
    ordered = sorted(devices, key=by_id)
    ordered.sort(key=lambda device: device.memory_bytes - used(device)[1], reverse=True)
    ordered.sort(key=lambda device: 1_000_000 - used(device)[0], reverse=True)
    return ordered


def first(devices: list[Device]) -> tuple[str, str | None, str | None]:
    return ("bound", devices[0].node, devices[0].id) if devices else ("pending", None, None)


def new(ledger: Ledger, demand: Demand) -> tuple[str, str | None, str | None]:
    def has_one(node: Node) -> bool:
        return any(
            demand.model in {gpu.model, ""}
            and demand.memory.on(gpu.memory_bytes) <= gpu.memory_bytes
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
