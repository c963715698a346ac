"""The binpack policy: the fullest GPU that fits, as in Alibaba's gpushare.

Within a node it chooses the GPU with the least free memory that fits, the lowest number on ties.
gpushare leaves the choice of the node to kube-scheduler; here it is the node whose chosen GPU has
the least left, then the name. For one GPU that is the GPU with the least free memory of all that
fit. Which GPUs fit is the filter's decision (:mod:`kubeshare.core.constraints`). If no vGPU fits,
a new one is opened on the smallest free GPU that fits, by the same order of nodes.

A demand for several GPUs takes equal shares of different GPUs of one node and one model, the
fullest that fit, new ones last, all or none, on the node that opens the fewest new vGPUs, then
whose GPUs then have the least left in all, then by name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import admitted
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.constraints.named import named_devices
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening
from kubeshare.core.policies.binpack.index import BinpackIndex, order
from kubeshare.core.policies.binpack.node_scores import score_new, score_one
from kubeshare.core.policies.binpack.reasons import candidates, explain
from kubeshare.core.policies.scoring import Score, allowed_nodes, ranked
from kubeshare.core.policies.several_shares import policy as several_shares
from kubeshare.core.policies.several_shares.search import Gpu, Preference, one_by_one


class Pick(msgspec.Struct, frozen=True):
    """Enough GPUs of one node and model.

    Attributes:
        node: the name of the node.
        taken: the existing devices among them.
        new: the free GPUs to open as new vGPUs.
    """

    node: str
    taken: tuple[Device, ...]
    new: tuple[FreeGpu, ...] = ()

    def rank(self) -> tuple[object, ...]:
        """The sort key, best first: new vGPUs, memory left in all, node, GPUs, model."""
        left = sum(device.memory_left for device in self.taken)
        left += sum(kind.memory_bytes for kind in self.new)
        fullest = tuple(_fullest(device) for device in self.taken)
        return len(self.new), left, natural(self.node), fullest, self.new


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger or to new ones, ``pending`` until something changes,
        or ``rejected`` because no GPU of this cluster could ever fit it.
    """
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.decide(ledger, demand, _RULES)
    index = ledger.index(BinpackIndex)
    why = partial(explain, ledger.snapshot(), demand)
    infeasible = _infeasible(ledger, demand)
    if infeasible:
        reasons = LazyReasons(partial(why, infeasible=infeasible))
        return Decision(outcome="rejected", reasons=reasons, field=infeasible[0])
    pick = _choose(ledger, index, demand)
    if pick is None:
        return Decision(outcome="pending", reasons=LazyReasons(why))
    new = opening.new_devices(ledger, demand, ledger.nodes[pick.node], pick.new)
    devices = (*pick.taken, *new)
    return Decision(
        outcome="bound",
        node=pick.node,
        devices=tuple([device.id for device in devices]),
        new=new,
        reasons=LazyReasons(partial(why, devices, opened=len(new))),
    )


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """The scores of those of `nodes` where a demand fits; see :mod:`..scoring`."""
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.score(ledger, demand, nodes, _RULES, score)
    if _infeasible(ledger, demand):
        return {}
    asked = allowed_nodes(demand, nodes)
    if demand.count > 1:
        return ranked(_picks(ledger, demand), asked)
    if not demand.device_id:
        return score_one(ledger, demand, asked)
    named = named_devices(ledger, demand)
    if named is None:
        return score_new(ledger, demand, asked)
    return ranked((Pick(device.node, (device,)) for device in named), asked)


def _infeasible(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field that makes the demand infeasible in this cluster, and why; None if none."""
    if demand.device_id:
        bad_id = opening.infeasible_id(ledger, demand)
        if bad_id:
            return bad_id
    if demand.count > 1:
        return feasibility.infeasible(ledger, demand)
    return feasibility.infeasible_on_all(ledger.index(BinpackIndex).kinds, demand)


def _choose(ledger: Ledger, index: BinpackIndex, demand: Demand) -> Pick | None:
    if demand.count > 1:
        return min(_picks(ledger, demand), key=Pick.rank, default=None)
    named = named_devices(ledger, demand) if demand.device_id else None
    if named is not None:
        first = min(named, key=_fullest, default=None)
        return None if first is None else Pick(first.node, (first,))
    label_in_use = is_label_in_use(ledger, demand)
    if not demand.device_id:
        groups = admitted(demand, label_in_use=label_in_use)
        best = index.fullest(demand, groups.unlabelled + groups.labelled, label_in_use=label_in_use)
        if best is not None:
            return Pick(best.node, (best,))
        if label_in_use:
            return None
    free = index.free_gpu(demand)
    return None if free is None else Pick(free[0], (), (free[1],))


def _picks(ledger: Ledger, demand: Demand) -> Iterator[Pick]:
    """For each node and model with enough GPUs, the fullest `count` of them, new ones last."""
    allowed = Filter(ledger, demand)
    fitting: dict[tuple[str, str], list[Device]] = defaultdict(list)
    free: dict[tuple[str, str], list[FreeGpu]] = defaultdict(list)
    for device in candidates(ledger, allowed):
        if not allowed.why_not(device):
            fitting[device.node, device.model].append(device)
    for node in ledger.nodes.values():
        if node.free and not allowed.why_not_new(node):
            for kind in opening.suitable(node.free, demand):
                free[node.name, kind.model].append(kind)
    for node_and_model in fitting.keys() | free.keys():
        taken = sorted(fitting.get(node_and_model, ()), key=_fullest)[: demand.count]
        new = free.get(node_and_model, [])[: demand.count - len(taken)]
        if len(taken) + len(new) == demand.count:
            yield Pick(node_and_model[0], tuple(taken), tuple(new))


def _fullest(device: Device) -> tuple[int, str]:
    return device.memory_left, order(device)


def _prefer(node: Node, devices: Collection[Device]) -> Preference:
    """The fullest GPUs first, then new ones."""
    del node, devices  # only the GPUs themselves matter

    def by_fullness(gpu: Gpu) -> tuple[object, ...]:
        return gpu.new, *_fullest(gpu.device)

    return one_by_one(by_fullness)


_RULES: Final = several_shares.Rules(decide, _prefer, _infeasible)
