"""Algorithm 1 for equal shares of several GPUs: all or none.

The GPUs of one demand are different GPUs of one node and one model. On each node they are picked
one by one in the order of Algorithm 1, new vGPUs last. Of the nodes with enough GPUs it is the
one that opens the fewest new vGPUs, then uses the fewest with an affinity label, then whose GPUs
fit best, then, if new ones are opened, with the fewest free GPUs, then by name.

This goes through the whole ledger: such demands are rare, so there is no index for them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import msgspec

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening


class Pick(msgspec.Struct, frozen=True):
    """Enough GPUs of one node and model.

    Attributes:
        node: the name of the node.
        model: the model of the GPUs.
        taken: the existing devices among them.
        new: the free GPUs to open as new vGPUs.
        free: how many GPUs are free on the node.
    """

    node: str
    model: str
    taken: tuple[Device, ...]
    new: tuple[FreeGpu, ...]
    free: int

    def rank(self) -> tuple[object, ...]:
        """The sort key, best first."""
        labelled = [device for device in self.taken if device.affinities]
        plain = [device for device in self.taken if not device.affinities]
        return (
            len(self.new),
            len(labelled),
            [best_fit(device) for device in plain],
            [worst_fit(device) for device in labelled],
            self.free,
            natural(self.node),
            natural(self.model),
        )


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a feasible demand for several GPUs, none requested by id, is placed."""
    pick = min(picks(ledger, demand), key=Pick.rank, default=None)
    if pick is None:
        return Decision(
            outcome="pending", reasons=LazyReasons(partial(explain, ledger.snapshot(), demand))
        )
    new = opening.new_devices(ledger, demand, ledger.nodes[pick.node], pick.new)
    return Decision(
        outcome="bound",
        node=pick.node,
        devices=tuple([device.id for device in (*pick.taken, *new)]),
        new=new,
        reasons=LazyReasons(partial(explain, ledger.snapshot(), demand, pick)),
    )


def picks(ledger: Ledger, demand: Demand) -> Iterator[Pick]:
    """The pick of each node and model with enough GPUs."""
    allowed = Filter(ledger, demand)
    fitting: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in ledger.devices.values():
        if allowed.admits(device.node) and not allowed.why_not(device):
            fitting[device.node, device.model].append(device)
    for node in ledger.nodes.values():
        if not allowed.admits(node.name):
            continue
        suitable = _free(allowed, node)
        models = {model for name, model in fitting if name == node.name}
        for model in models.union(gpu.model for gpu in suitable):
            taken = sorted(fitting.get((node.name, model), ()), key=order)[: demand.count]
            missing = demand.count - len(taken)
            new = [gpu for gpu in suitable if gpu.model == model][:missing]
            if len(new) == missing:
                yield Pick(node.name, model, tuple(taken), tuple(new), len(node.free))


def _free(allowed: Filter, node: Node) -> list[FreeGpu]:
    """The suitable free GPUs of a node, the smallest first."""
    free = () if allowed.only else node.free
    return opening.suitable(free, allowed.demand)


def best_fit(device: Device) -> tuple[int, int, str]:
    """The sort key for best fit: the least left first."""
    return device.compute_left, device.memory_left, device.order


def worst_fit(device: Device) -> tuple[int, int, str]:
    """The sort key for worst fit: the most left first."""
    return -device.compute_left, -device.memory_left, device.order


def order(device: Device) -> tuple[bool, tuple[int, int, str]]:
    """The sort key in the order of Algorithm 1: line 21 before line 23."""
    labelled = bool(device.affinities)
    return labelled, worst_fit(device) if labelled else best_fit(device)


def explain(state: Ledger | Snapshot, demand: Demand, pick: Pick | None = None) -> dict[str, str]:
    """Why each device and node was passed over: devices first, each in natural order."""
    allowed = Filter(state, demand)
    taken = {device.id for device in pick.taken} if pick else set()
    devices = [device for device in state.devices.values() if allowed.admits(device.node)]
    devices.sort(key=lambda device: (natural(device.node), device.order))
    why_not = {device.id: allowed.why_not(device) for device in devices}
    fitting = Counter((each.node, each.model) for each in devices if not why_not[each.id])
    for name, node in state.nodes.items():
        fitting.update((name, gpu.model) for gpu in _free(allowed, node))
    result = {}
    for device in devices:
        alike = fitting[device.node, device.model]
        if device.id not in taken:
            result[device.path] = why_not[device.id] or _why_others(device, demand, pick, alike)
    for name in sorted(state.nodes, key=natural):
        if not allowed.admits(name):
            result[name] = reasons.NOT_ASKED
        elif allowed.only and not pick:
            result[name] = allowed.only
        elif not pick or (pick.new and name != pick.node):
            alike = max((fitting[kind] for kind in fitting if kind[0] == name), default=0)
            result[name] = _why_no_new(state.nodes[name], demand, pick, alike)
    return result


def _why_others(device: Device, demand: Demand, pick: Pick | None, alike: int) -> str:
    """Why others were chosen over a device that fits; `alike` GPUs of its node and model fit."""
    if pick is None or alike < demand.count:
        return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
    return f"fits, but those on {pick.node} fit better or come first"


def _why_no_new(node: Node, demand: Demand, pick: Pick | None, alike: int) -> str:
    """Why no new vGPUs were opened on a node where `alike` GPUs of one model fit."""
    reason = reasons.no_free_gpu(node.free, demand)
    if reason:
        return reason
    if pick is None or alike < demand.count:
        return f"{alike} suitable GPUs of one model, {demand.count} asked"
    return f"those on {pick.node} fit better or come first"
