"""Places a demand of several different shares, under any policy.

All shares are placed or none, on one node and on GPUs of one model. The policy ranks the nodes
by the largest share alone, as it does for a demand that asks for nothing else; of the nodes on
which all shares fit, the first is taken. On the node, the shares are placed by
:mod:`kubeshare.core.policies.several_shares.search` in the order that the policy prefers.

The labels of the demand constrain it with regard to the holders of others; its own shares may be
on one GPU unless a container uses both.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

import msgspec

from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, opening
from kubeshare.core.policies.scoring import Score, Scorer
from kubeshare.core.policies.several_shares.reasons import explain
from kubeshare.core.policies.several_shares.search import Gpu, Preference, largest_first, place

Placed = Mapping[str, list[Gpu]]
"""Name of each share → its GPUs."""


class Rules(msgspec.Struct, frozen=True):
    """What a policy contributes.

    Attributes:
        decide: the policy for demands in the short form; ranks the nodes.
        prefer: returns the order of the GPUs of a node, from the node and its devices.
        infeasible: the field of a demand that no GPU of a cluster could satisfy, and why.
        unsupported: the field of a demand that the policy does not support, and why.
    """

    decide: Policy
    prefer: Callable[[Node, Collection[Device]], Preference]
    infeasible: Callable[[Ledger, Demand], tuple[str, str] | None]
    unsupported: Callable[[Demand], tuple[str, str] | None] = lambda _: None


def decide(ledger: Ledger, demand: Demand, rules: Rules) -> Decision:
    """Decide where a demand with ``shares`` is placed; a pure function of its arguments."""
    reasons = partial(explain, ledger.snapshot(), demand)
    unsupported = _unsupported(demand, rules)
    found = None if unsupported else _Nodes(ledger, demand, rules).first()
    if found is None:
        # This goes through all GPUs, so it is done only where no node fits.
        infeasible = unsupported or _infeasible(ledger, demand, rules)
        if not infeasible:
            return Decision(outcome="pending", reasons=LazyReasons(reasons))
        why = LazyReasons(partial(reasons, infeasible=infeasible))
        return Decision(outcome="rejected", reasons=why, field=infeasible[0])
    node, placed = found
    opened = _opened(ledger, demand, placed)
    units = [(share.name, gpu.device.id) for share in demand.shares for gpu in placed[share.name]]
    devices = tuple(opened[found].id if found in opened else found for _, found in units)
    return Decision(
        outcome="bound",
        node=node,
        devices=devices,
        shares=tuple(name for name, _ in units),
        new=tuple(opened.values()),
        reasons=LazyReasons(partial(reasons, node=node, taken=frozenset(devices))),
    )


def score(
    ledger: Ledger, demand: Demand, nodes: Iterable[str], rules: Rules, score_one: Scorer
) -> dict[str, Score]:
    """The scores of those of `nodes` on which all shares fit, as ``score_one`` has them.

    Args:
        ledger: the cluster.
        demand: a demand with ``shares``.
        nodes: the names of nodes.
        rules: those of the policy.
        score_one: the policy's scores for demands in the short form.
    """
    if _unsupported(demand, rules):
        return {}
    found = score_one(ledger, _lead(demand), nodes)
    fits_on = _Nodes(ledger, demand, rules).fits_on
    return {name: score for name, score in found.items() if fits_on(name)}


class _Nodes:
    """The nodes of a ledger, as one demand may use them."""

    def __init__(self, ledger: Ledger, demand: Demand, rules: Rules) -> None:
        self._ledger = ledger
        self._demand = demand
        self._rules = rules
        self._devices = ledger.index(NodeDevices)
        self._allowed = Filter(ledger, demand)

    def first(self) -> tuple[str, Placed] | None:
        """The first node in the order of the policy on which all shares fit, and their GPUs."""
        lead = _lead(self._demand)
        best = self._rules.decide(self._ledger, lead).node
        if best is None:
            return None
        placed = self._place_on(best)
        if placed is None:
            fitting = frozenset(
                name
                for name in self._ledger.nodes
                if name != best and self._allowed.admits(name) and self._place_on(name)
            )
            lead = msgspec.structs.replace(lead, nodes=fitting)
            best = self._rules.decide(self._ledger, lead).node if fitting else None
            placed = self._place_on(best) if best is not None else None
        return (best, placed) if best is not None and placed is not None else None

    def fits_on(self, name: str) -> bool:
        """Whether all shares fit on a node."""
        return self._place_on(name) is not None

    def _place_on(self, name: str) -> Placed | None:
        node, devices = self._ledger.nodes[name], self._devices.on(name)
        usable = [device for device in devices if not self._allowed.why_not(device)]
        gpus = [Gpu.of(device) for device in usable]
        if not self._allowed.only:
            gpus += [Gpu.of(device, new=True) for device in _free(node, self._demand)]
        return place(self._demand, gpus, self._rules.prefer(node, devices))


def _lead(demand: Demand) -> Demand:
    """The demand for its largest share, by which nodes are ranked."""
    return demand.reduced_to(largest_first(demand.shares)[0])


def _free(node: Node, demand: Demand) -> Iterator[Device]:
    """The free GPUs of the right model, as idle devices; of one kind not more than are needed.

    Of the GPUs that can be selected it is all of them.
    """
    needed = len(demand.per_gpu())
    kinds = [kind for kind in node.free if demand.model in ("", kind.model)]
    for gpu in node.selectable:
        if gpu.kind in kinds:
            kinds.remove(gpu.kind)
            yield opening.new_device(f"free/{gpu.uuid}", node.name, gpu.kind, (gpu,))
    for kind, count in sorted(Counter(kinds).items()):
        for number in range(min(count, needed)):
            search_id = f"free/{kind.model}/{kind.memory_bytes}/{number}"
            yield opening.new_device(search_id, node.name, kind)


def _opened(ledger: Ledger, demand: Demand, placed: Placed) -> dict[str, Device]:
    """The new devices by the ids that they have in the search."""
    used = {gpu.device.id: gpu.before for gpus in placed.values() for gpu in gpus if gpu.new}
    ids = opening.new_ids(ledger, demand)
    return {
        search_id: msgspec.structs.replace(device, id=next(ids))
        for search_id, device in sorted(used.items())
    }


def _unsupported(demand: Demand, rules: Rules) -> tuple[str, str] | None:
    for share in demand.shares:
        found = rules.unsupported(demand.reduced_to(share))
        if found:
            return f"shares.{share.name}.{found[0]}", found[1]
    return None


def _infeasible(ledger: Ledger, demand: Demand, rules: Rules) -> tuple[str, str] | None:
    for share in demand.shares:
        found = rules.infeasible(ledger, demand.reduced_to(share))
        if found:
            return f"shares.{share.name}.{found[0]}", found[1]
    return feasibility.infeasible_together(ledger, demand)
