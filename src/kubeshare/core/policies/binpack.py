"""Placement by bin packing, as Alibaba's gpushare does it: fill what is fullest.

Within a node the GPU with the least free memory that fits, the lowest number on ties.
gpushare leaves the node to kube-scheduler; where it is chosen here, it is the node
whose chosen GPU is left with the least, then the name. For one GPU that is the GPU
with the least free memory of all that fit, whichever node it is on.

A demand for several GPUs takes equal shares of different GPUs of one node and one
model, the fullest that fit, all or none; the node whose GPUs are then left with the
least in all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kubeshare.core import never, reasons
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, natural
from kubeshare.core.ledger import Ledger

_Key: TypeAlias = tuple[object, ...]


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger, ``pending`` until something changes, or
        ``rejected`` because no GPU of this cluster could ever take it.
    """
    impossible = never.why(ledger, demand)
    if impossible:
        field, message = impossible
        told = _reasons(ledger, demand, (), never=message) | {field: message}
        return Decision(outcome="rejected", reasons=told, field=field)
    chosen = _choose(ledger, demand)
    told = _reasons(ledger, demand, chosen)
    if not chosen:
        return Decision(outcome="pending", reasons=told)
    return Decision(
        outcome="bound",
        node=chosen[0].node,
        devices=tuple(device.id for device in chosen),
        reasons=told,
    )


def _choose(ledger: Ledger, demand: Demand) -> tuple[Device, ...]:
    fitting = (device for device in _admitted(ledger, demand) if not _why_not(device, demand))
    if demand.count == 1:
        best = min(fitting, key=_fullest, default=None)
        return (best,) if best else ()
    return min(_sets(fitting, demand.count), key=_fullest_set, default=())


def _sets(fitting: Iterable[Device], count: int) -> Iterator[tuple[Device, ...]]:
    """For each node and model that has enough of them the fullest `count` devices."""
    of_a_kind: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in fitting:
        of_a_kind[device.node, device.model].append(device)
    for devices in of_a_kind.values():
        if len(devices) >= count:
            yield tuple(sorted(devices, key=_fullest)[:count])


def _fullest(device: Device) -> _Key:
    return (device.memory_left, natural(device.node), natural(device.name))


def _fullest_set(devices: tuple[Device, ...]) -> _Key:
    left = sum(device.memory_left for device in devices)
    return (left, natural(devices[0].node), natural(devices[0].model))


def _admitted(ledger: Ledger, demand: Demand) -> Iterator[Device]:
    """The devices of the nodes that may be used."""
    for device in ledger.devices.values():
        if demand.nodes is None or device.node in demand.nodes:
            yield device


def _why_not(device: Device, demand: Demand) -> str | None:
    wanted = demand.device_id
    if wanted and wanted not in (device.id, device.name):
        return f"GPU {wanted} is asked for"
    return reasons.service(device) or reasons.model(device, demand) or reasons.room(device, demand)


def _reasons(
    ledger: Ledger, demand: Demand, chosen: tuple[Device, ...], *, never: str = ""
) -> dict[str, str]:
    """Why each device and node was passed over, in natural order, devices first."""
    taken = {device.id for device in chosen}
    words = {
        device.path: _why_not(device, demand) or never or _why_rather(device, demand, chosen)
        for device in sorted(_admitted(ledger, demand), key=_by_name)
        if device.id not in taken
    }
    for name in sorted(ledger.nodes, key=natural):
        if demand.nodes is not None and name not in demand.nodes:
            words[name] = "not among the nodes asked for"
    return words


def _why_rather(device: Device, demand: Demand, chosen: tuple[Device, ...]) -> str:
    """Why others were taken than a device that fits."""
    if not chosen:
        return f"fits, but not {demand.count} of its model on {device.node} do"
    paths = ", ".join(taken.path for taken in chosen)
    if demand.count == 1 and device.memory_left > chosen[0].memory_left:
        return f"fits, but {paths} fits closer"
    if demand.count == 1:
        return f"fits, but {paths} fits as well and comes first"
    return f"fits, but {paths} fit closer or come first"


def _by_name(device: Device) -> _Key:
    return (natural(device.node), natural(device.name))
