"""Algorithm 1 for equal shares of several GPUs: all of them, or none.

The GPUs of one demand are different ones of one node and one model. On each node they
are picked one by one as for a single GPU: those that Algorithm 1 would take before those
that it would take later, and a new vGPU last. Of the nodes that have enough it is the
one that opens the fewest new vGPUs, then uses the fewest that have an affinity label,
then whose GPUs fit best, then, where new ones are opened, that has the fewest free GPUs,
then by name.

This looks at the whole ledger; such demands are rare, and no index is kept for them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import msgspec

from kubeshare.core import reasons
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.locality.reasons import Telling


class Pick(msgspec.Struct, frozen=True):
    """Enough GPUs of one node and model.

    Attributes:
        node: that they are on.
        model: that they are of.
        taken: the devices of the ledger among them.
        new: the free GPUs that are to be opened.
        free: how many GPUs are free on the node.
    """

    node: str
    model: str
    taken: tuple[Device, ...]
    new: tuple[FreeGpu, ...]
    free: int

    def rank(self) -> tuple[object, ...]:
        """Sorts the best first."""
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


def decide(
    ledger: Ledger, demand: Demand, new_ids: Callable[[Ledger, Demand], Iterator[str]]
) -> Decision:
    """Where a demand for several GPUs goes that is not impossible.

    Args:
        ledger: the cluster.
        demand: for more than one GPU, none of them by its id.
        new_ids: the ids of vGPUs that are opened for a demand, in order.
    """
    pick = min(picks(ledger, demand), key=Pick.rank, default=None)
    if pick is None:
        return Decision(
            outcome="pending", reasons=LazyReasons(partial(tell, ledger.snapshot(), demand))
        )
    ids = islice(new_ids(ledger, demand), len(pick.new))
    new = tuple(
        Device(id=new_id, node=pick.node, model=gpu.model, memory_bytes=gpu.memory_bytes)
        for new_id, gpu in zip(ids, pick.new, strict=True)
    )
    return Decision(
        outcome="bound",
        node=pick.node,
        devices=tuple([device.id for device in (*pick.taken, *new)]),
        new=new,
        reasons=LazyReasons(partial(tell, ledger.snapshot(), demand, pick)),
    )


def picks(ledger: Ledger, demand: Demand) -> Iterator[Pick]:
    """What each node and model that has enough would give."""
    telling = Telling(ledger, demand)
    fitting: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in ledger.devices.values():
        if telling.admits(device.node) and not telling.why_not(device):
            fitting[device.node, device.model].append(device)
    for node in ledger.nodes.values():
        if not telling.admits(node.name):
            continue
        would_do = _free(telling, node)
        models = {model for name, model in fitting if name == node.name}
        for model in models.union(gpu.model for gpu in would_do):
            taken = sorted(fitting.get((node.name, model), ()), key=order)[: demand.count]
            missing = demand.count - len(taken)
            new = [gpu for gpu in would_do if gpu.model == model][:missing]
            if len(new) == missing:
                yield Pick(node.name, model, tuple(taken), tuple(new), len(node.free))


def _free(telling: Telling, node: Node) -> list[FreeGpu]:
    """The free GPUs of a node that could be opened, the smallest first."""
    free = () if telling.bound_to else node.free
    return sorted(gpu for gpu in free if not reasons.no_free_gpu((gpu,), telling.demand))


def best_fit(device: Device) -> tuple[int, int, str]:
    """Sorts the device with the least left first."""
    return device.compute_left, device.memory_left, natural(device.id)


def worst_fit(device: Device) -> tuple[int, int, str]:
    """Sorts the device with the most left first."""
    return -device.compute_left, -device.memory_left, natural(device.id)


def order(device: Device) -> tuple[bool, tuple[int, int, str]]:
    """Sorts devices as Algorithm 1 takes them, line 21 before line 23."""
    labelled = bool(device.affinities)
    return labelled, worst_fit(device) if labelled else best_fit(device)


def tell(state: Ledger | Snapshot, demand: Demand, pick: Pick | None = None) -> dict[str, str]:
    """Why each device and node was passed over: devices first, each in natural order."""
    telling = Telling(state, demand)
    taken = {device.id for device in pick.taken} if pick else set()
    devices = [device for device in state.devices.values() if telling.admits(device.node)]
    devices.sort(key=lambda device: (natural(device.node), natural(device.id)))
    why_not = {device.id: telling.why_not(device) for device in devices}
    fitting = Counter((each.node, each.model) for each in devices if not why_not[each.id])
    for name, node in state.nodes.items():
        fitting.update((name, gpu.model) for gpu in _free(telling, node))
    told = {}
    for device in devices:
        alike = fitting[device.node, device.model]
        if device.id not in taken:
            told[device.path] = why_not[device.id] or _why_rather(device, demand, pick, alike)
    for name in sorted(state.nodes, key=natural):
        if not telling.admits(name):
            told[name] = reasons.NOT_ASKED
        elif telling.bound_to and not pick:
            told[name] = telling.bound_to
        elif not pick or (pick.new and name != pick.node):
            alike = max((fitting[kind] for kind in fitting if kind[0] == name), default=0)
            told[name] = _why_no_new(state.nodes[name], demand, pick, alike)
    return told


def _why_rather(device: Device, demand: Demand, pick: Pick | None, alike: int) -> str:
    """Why others were taken than a device that fits, one of so many on its node, free ones too."""
    if pick is None or alike < demand.count:
        return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
    return f"fits, but those on {pick.node} fit better or come first"


def _why_no_new(node: Node, demand: Demand, pick: Pick | None, alike: int) -> str:
    """Why no new vGPUs were opened on a node that has so many GPUs of one model that would do."""
    reason = reasons.no_free_gpu(node.free, demand)
    if reason:
        return reason
    if pick is None or alike < demand.count:
        return f"{alike} GPUs of one model that would do, {demand.count} asked"
    return f"those on {pick.node} fit better or come first"
