"""Placement by bin packing, as Alibaba's gpushare does it: fill what is fullest.

Within a node the GPU with the least free memory that fits, the lowest number on ties.
gpushare leaves the node to kube-scheduler; where it is chosen here, it is the node
whose chosen GPU is left with the least, then the name. For one GPU that is the GPU
with the least free memory of all that fit, whichever node it is on.

A demand for several GPUs takes equal shares of different GPUs of one node and one
model, the fullest that fit, all or none; the node whose GPUs are then left with the
least in all, then by name.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from kubeshare.core import reasons
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.binpack.index import BinpackIndex, order


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger, ``pending`` until something changes, or
        ``rejected`` because no GPU of this cluster could ever take it.
    """
    index = ledger.index(BinpackIndex)
    told = partial(_tell, ledger.snapshot(), demand)
    impossible = feasibility.why_on_any(index.kinds, demand)
    if demand.count > 1 and not impossible:
        impossible = feasibility.why(ledger, demand)
    if impossible:
        why = LazyReasons(partial(told, impossible=impossible))
        return Decision(outcome="rejected", reasons=why, field=impossible[0])
    chosen = _choose(ledger, index, demand)
    if not chosen:
        return Decision(outcome="pending", reasons=LazyReasons(told))
    return Decision(
        outcome="bound",
        node=chosen[0].node,
        devices=tuple([device.id for device in chosen]),
        reasons=LazyReasons(partial(told, chosen)),
    )


def _choose(ledger: Ledger, index: BinpackIndex, demand: Demand) -> tuple[Device, ...]:
    if demand.count == 1 and demand.proportional and not demand.device_id:
        best = index.fullest(demand)
        return (best,) if best is not None else ()
    fitting = [device for device in _admitted(ledger, demand) if not _why_not(device, demand)]
    return min(_sets(fitting, demand.count), key=_left, default=())


def _sets(fitting: Iterable[Device], count: int) -> Iterator[tuple[Device, ...]]:
    """For each node and model that has enough of them the fullest `count` devices."""
    of_a_kind: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in fitting:
        of_a_kind[device.node, device.model].append(device)
    for devices in of_a_kind.values():
        if len(devices) >= count:
            yield tuple(sorted(devices, key=_fullest)[:count])


def _fullest(device: Device) -> tuple[int, str, str]:
    return device.memory_left, order(device), device.id


def _left(devices: tuple[Device, ...]) -> tuple[object, ...]:
    """What a set leaves, and by what equals are told apart: the node, then its GPUs."""
    left = sum(device.memory_left for device in devices)
    return left, natural(devices[0].node), tuple(_fullest(device) for device in devices)


def _admitted(ledger: Ledger | Snapshot, demand: Demand) -> Iterator[Device]:
    """The devices of the nodes that are known and may be used."""
    for device in ledger.devices.values():
        if device.node in ledger.nodes and (demand.nodes is None or device.node in demand.nodes):
            yield device


def _why_not(device: Device, demand: Demand) -> str | None:
    wanted = demand.device_id
    if wanted and wanted != device.id:
        return f"vGPU {wanted} is asked for"
    return reasons.service(device) or reasons.model(device, demand) or reasons.room(device, demand)


def _tell(
    state: Snapshot,
    demand: Demand,
    chosen: tuple[Device, ...] = (),
    *,
    impossible: tuple[str, str] = ("", ""),
) -> dict[str, str]:
    """Why each device and node was passed over, in natural order, devices first."""
    field, why_never = impossible
    taken = {device.id for device in chosen}
    devices = sorted(_admitted(state, demand), key=order)
    why_not = {device.id: _why_not(device, demand) for device in devices}
    fitting = Counter((each.node, each.model) for each in devices if not why_not[each.id])
    told = {}
    for device in devices:
        if device.id not in taken:
            alike = fitting[device.node, device.model]
            rather = why_never or _why_rather(device, demand, chosen, alike)
            told[device.path] = why_not[device.id] or rather
    for name in sorted(state.nodes, key=natural):
        if demand.nodes is not None and name not in demand.nodes:
            told[name] = reasons.NOT_ASKED
    return told | ({field: why_never} if field else {})


def _why_rather(device: Device, demand: Demand, chosen: tuple[Device, ...], alike: int) -> str:
    """Why others were taken than a device that fits, one of so many on its node."""
    if alike < demand.count:
        return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
    paths = ", ".join(sorted((taken.path for taken in chosen), key=natural))
    if demand.count > 1:
        return f"fits, but {paths} fit closer or come first"
    if device.memory_left > chosen[0].memory_left:
        return f"fits, but {paths} fits closer"
    return f"fits, but {paths} fits as well and comes first"
