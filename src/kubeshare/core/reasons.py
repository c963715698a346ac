"""Messages with numbers that say why a GPU does not fit.

Events, the command line and JSON all use these messages. Each function checks one rule and
returns None if it holds.
"""

from collections.abc import Collection, Iterable
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder
from kubeshare.core.units import format_memory, format_share

NOT_ASKED: Final = "not among the nodes asked for"
"""The reason for a node that the demand may not use."""


def service(device: Device) -> str | None:
    """The device is in service: healthy and not fenced."""
    if not device.healthy:
        return "unhealthy"
    return "fenced, takes no new holder" if device.fenced else None


def model(device: Device, demand: Demand) -> str | None:
    """The device is of the requested model."""
    if demand.model in ("", device.model):
        return None
    return f"model {device.model or 'unknown'}, asked {demand.model}"


def exclusion(device: Device, demand: Demand) -> str | None:
    """All holders have the demand's exclusion label; absent equals only absent."""
    if device.idle or device.exclusions == {demand.exclusion}:
        return None
    own = {each.exclusion for each in device.holders if each.namespace == demand.namespace}
    present = sorted(device.exclusions & own - {""})
    if device.exclusions - own - {""}:
        present.append("of another namespace")
    return f"exclusion {', '.join(present) or 'none'}, asked {demand.exclusion or 'none'}"


def anti_affinity(device: Device, demand: Demand) -> str | None:
    """No holder has the demand's anti-affinity label."""
    if demand.anti_affinity and demand.anti_affinity in device.anti_affinities:
        return f"anti-affinity {demand.anti_affinity} is on it already"
    return None


def room(device: Device, demand: Demand) -> str | None:
    """The device has enough compute and memory left, and room for another holder."""
    memory = demand.memory.on(device.memory_bytes)
    too_large = memory > device.memory_left
    compute = demand.compute_on(device.memory_bytes)
    # If compute follows memory, the user asked for memory only.
    if compute > device.compute_left and not (too_large and demand.proportional):
        left, requested = format_share(device.compute_left), format_share(compute)
        return f"compute {left} left, {requested} asked"
    if too_large:
        left, requested = two_sizes(device.memory_left, memory)
        return f"memory {left} left, {requested} asked"
    if len(device.holders) >= MAX_HOLDERS:
        return f"{MAX_HOLDERS} holders, as many as a vGPU takes"
    return None


def no_free_gpu(free: tuple[FreeGpu, ...], demand: Demand) -> str | None:
    """A free physical GPU of the node fits as a new vGPU."""
    if not free:
        return "no free GPU"
    of_model = [gpu for gpu in free if demand.model in ("", gpu.model)]
    if not of_model:
        models = ", ".join(sorted({gpu.model or "unknown" for gpu in free}))
        return f"no free GPU of model {demand.model}, only of {models}"
    largest = max(gpu.memory_bytes for gpu in of_model)
    requested = demand.memory.on(largest)
    if requested > largest:
        has, wants = two_sizes(largest, requested)
        return f"memory {has} on its largest free GPU, {wants} asked"
    return None


def nothing_to_open(node: Node, there: Collection[Device], demand: Demand) -> str | None:
    """No free GPU of the node fits as a new vGPU; `there` are the vGPUs of the node."""
    if not (node.free or there or node.total):
        return "no GPU"
    return no_free_gpu(node.free, demand)


def lists_all_gpus(node: Node, there: Collection[Device]) -> bool:
    """Whether all GPUs of a node are numbered devices: then the reasons for those say it all."""
    return bool(there) and not node.free and all(device.index is not None for device in there)


def readable_names(holders: Iterable[Holder], namespace: str) -> str:
    """The names of the holders of a namespace, and how many there are of others."""
    names, others = [], 0
    for holder in holders:
        if holder.namespace == namespace:
            names.append(holder.name)
        else:
            others += 1
    if others:
        names.append(f"{others} of other namespaces")
    return ", ".join(names)


def two_sizes(left: int, requested: int) -> tuple[str, str]:
    """Two different amounts of memory as texts that differ too."""
    texts = format_memory(left), format_memory(requested)
    return texts if texts[0] != texts[1] else (str(left), str(requested))
