"""The binpack policy: the fullest GPU that fits, as in Alibaba's gpushare.

Within a node it chooses the GPU with the least free memory that fits, the lowest number on ties.
gpushare leaves the choice of the node to kube-scheduler; here it is the node whose chosen GPU has
the least left, then the name. For one GPU that is the GPU with the least free memory of all that
fit. Which GPUs fit is the filter's decision (:mod:`kubeshare.core.constraints`).

A demand for several GPUs takes equal shares of different GPUs of one node and one model, the
fullest that fit, all or none, on the node whose GPUs then have the least left in all, then by
name.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.constraints.carriers import is_carried
from kubeshare.core.constraints.checks import admitted
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.binpack.index import BinpackIndex, order
from kubeshare.core.policies.several_shares import policy as several_shares
from kubeshare.core.policies.several_shares.search import Gpu, Preference, one_by_one


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger, ``pending`` until something changes, or
        ``rejected`` because no GPU of this cluster could ever fit it.
    """
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.decide(ledger, demand, _RULES)
    index = ledger.index(BinpackIndex)
    explain = partial(_explain, ledger.snapshot(), demand)
    infeasible = feasibility.infeasible_on_all(index.kinds, demand)
    if demand.count > 1 and not infeasible:
        infeasible = feasibility.infeasible(ledger, demand)
    if infeasible:
        why = LazyReasons(partial(explain, infeasible=infeasible))
        return Decision(outcome="rejected", reasons=why, field=infeasible[0])
    chosen = _choose(ledger, index, demand)
    if not chosen:
        return Decision(outcome="pending", reasons=LazyReasons(explain))
    return Decision(
        outcome="bound",
        node=chosen[0].node,
        devices=tuple([device.id for device in chosen]),
        reasons=LazyReasons(partial(explain, chosen)),
    )


def _choose(ledger: Ledger, index: BinpackIndex, demand: Demand) -> tuple[Device, ...]:
    if demand.count == 1 and not demand.device_id:
        carried = is_carried(ledger, demand)
        groups = admitted(demand, carried=carried)
        best = index.fullest(demand, groups.unlabelled + groups.labelled, carried=carried)
        return (best,) if best is not None else ()
    allowed = Filter(ledger, demand)
    fitting = [device for device in _candidates(ledger, allowed) if not allowed.why_not(device)]
    return min(_sets(fitting, demand.count), key=_left, default=())


def _sets(fitting: Iterable[Device], count: int) -> Iterator[tuple[Device, ...]]:
    """For each node and model with enough devices that fit, the fullest `count` of them."""
    of_a_kind: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in fitting:
        of_a_kind[device.node, device.model].append(device)
    for devices in of_a_kind.values():
        if len(devices) >= count:
            yield tuple(sorted(devices, key=_fullest)[:count])


def _fullest(device: Device) -> tuple[int, str]:
    return device.memory_left, order(device)


def _left(devices: tuple[Device, ...]) -> tuple[object, ...]:
    """Sorts sets by the memory they leave, then by node, then by their GPUs."""
    left = sum(device.memory_left for device in devices)
    return left, natural(devices[0].node), tuple(_fullest(device) for device in devices)


def _candidates(state: Ledger | Snapshot, allowed: Filter) -> Iterator[Device]:
    """The devices of known nodes that the demand may use."""
    for device in state.devices.values():
        if device.node in allowed.nodes and allowed.admits(device.node):
            yield device


def _explain(
    state: Snapshot,
    demand: Demand,
    chosen: tuple[Device, ...] = (),
    *,
    infeasible: tuple[str, str] = ("", ""),
) -> dict[str, str]:
    """Why each device and node was passed over, in natural order, devices first."""
    field, never = infeasible
    allowed = Filter(state, demand)
    taken = {device.id for device in chosen}
    devices = sorted(_candidates(state, allowed), key=order)
    why_not = {device.id: allowed.why_not(device) for device in devices}
    fitting = Counter((each.node, each.model) for each in devices if not why_not[each.id])
    result = {}
    for device in devices:
        if device.id not in taken:
            alike = fitting[device.node, device.model]
            others = never or _why_others(device, demand, chosen, alike)
            result[device.path] = why_not[device.id] or others
    for name in sorted(state.nodes, key=natural):
        if demand.nodes is not None and name not in demand.nodes:
            result[name] = reasons.NOT_ASKED
    return result | ({field: never} if field else {})


def _why_others(device: Device, demand: Demand, chosen: tuple[Device, ...], alike: int) -> str:
    """Why others were chosen over a device that fits; `alike` devices of its node and model fit."""
    if alike < demand.count:
        return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
    paths = ", ".join(sorted((taken.path for taken in chosen), key=natural))
    if demand.count > 1:
        return f"fits, but {paths} fit closer or come first"
    if device.memory_left > chosen[0].memory_left:
        return f"fits, but {paths} fits closer"
    return f"fits, but {paths} fits as well and comes first"


def _prefer(node: Node, devices: Collection[Device]) -> Preference:
    """The fullest GPUs first, then new ones."""
    del node, devices  # only the GPUs themselves matter

    def by_fullness(gpu: Gpu) -> tuple[object, ...]:
        return gpu.new, *_fullest(gpu.device)

    return one_by_one(by_fullness)


_RULES: Final = several_shares.Rules(decide, _prefer, feasibility.infeasible)
