"""Creates new vGPUs for free physical GPUs, for every policy."""

from collections.abc import Iterable, Iterator

import msgspec

from kubeshare.core import gpuid
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger


def infeasible_id(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field ``id``, and why no vGPU of the requested id can be used; None if one can."""
    requested = demand.device_id
    if demand.count > 1 and requested:
        return "id", f"{requested} is one GPU, and {demand.count} are asked"
    reserved = requested.startswith(gpuid.RESERVED_PREFIX)
    if reserved and not ledger.index(GpuidIndex).named(demand):
        return "id", f"there is no vGPU {requested}, and new ones of that prefix are not for users"
    return None


def is_suitable(kind: FreeGpu, demand: Demand) -> bool:
    """Whether an idle GPU of this kind fits the demand."""
    return (
        demand.model in ("", kind.model)
        and demand.memory.on(kind.memory_bytes) <= kind.memory_bytes
    )


def suitable(kinds: Iterable[FreeGpu], demand: Demand) -> list[FreeGpu]:
    """Those of the kinds that fit the demand, the smallest first, then by model."""
    return sorted(filter(lambda kind: is_suitable(kind, demand), kinds), key=_size)


def new_devices(
    ledger: Ledger, demand: Demand, node: Node, kinds: Iterable[FreeGpu]
) -> tuple[Device, ...]:
    """New vGPUs without holders on free GPUs of a node, one for each of these kinds.

    A demand that requests a GPUID gets one vGPU of that GPUID. Of the selectable GPUs of a kind
    the first ones are used. If the device plugin selects among different GPUs, and the demand may
    use any model, the model is unknown.
    """
    requested = demand.device_id
    any_model = demand.count == 1 and not (demand.model or demand.shares)
    unknown = any_model and not node.selectable and len(set(node.free)) > 1
    ids = new_ids(ledger, demand)
    if requested:
        ids = iter([gpuid.object_name(node.name, requested, ledger.devices)])
    selectable = list(node.selectable)
    devices = []
    for kind in kinds:
        device = new_device(next(ids), node.name, kind, selectable)
        if unknown:
            device = msgspec.structs.replace(device, model="")
        selectable = [gpu for gpu in selectable if gpu.uuid != device.uuid]
        own = "" if requested in ("", device.id) else requested
        devices.append(msgspec.structs.replace(device, gpuid=own) if own else device)
    return tuple(devices)


def new_device(
    device_id: str, node: str, kind: FreeGpu, selectable: Iterable[SelectableGpu] = ()
) -> Device:
    """A new vGPU on a free GPU of a kind: on the first one that is selectable, if any is."""
    gpu = next((gpu for gpu in selectable if gpu.kind == kind), None)
    return Device(
        id=device_id,
        node=node,
        row=gpu.row if gpu else None,
        uuid=gpu.uuid if gpu else "",
        model=kind.model,
        memory_bytes=kind.memory_bytes,
    )


def new_ids(ledger: Ledger, demand: Demand) -> Iterator[str]:
    """Unused generated ids that depend on the demand only."""
    return gpuid.generated(demand.uid, demand.attempt, ledger.devices)


def _size(kind: FreeGpu) -> tuple[int, str]:
    return kind.memory_bytes, kind.model
