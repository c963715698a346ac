"""Places a demand of several different shares, under any policy.

All shares are placed or none, on one node and on GPUs of one model. The policy ranks the nodes
by the largest share alone, as it does for a demand that asks for nothing else; of the nodes on
which all shares fit, the first is taken. On the node, the shares are placed by
:mod:`kubeshare.core.policies.several_shares.search` in the order that the policy prefers.

The labels of the demand constrain it with regard to the holders of others; its own shares may be
on one GPU unless a container uses both.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import labels_admit, takes_holders
from kubeshare.core.constraints.filter import State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.index.node_ranking import NodeRanking, NodeRankings
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import opening
from kubeshare.core.policies.rules import FEASIBLE, Choice, RankedNode, Refusal, Rules
from kubeshare.core.policies.scoring import Score
from kubeshare.core.policies.several_shares import reasons
from kubeshare.core.policies.several_shares.search import Gpu, Preference, largest_first, place

Placed = Mapping[str, list[Gpu]]
"""Name of each share → its GPUs."""


class SeveralShares(Rules):
    """The rules of a policy, for demands with ``shares``.

    Args:
        rules: those of the policy, for demands in the short form.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def refuses(self, ledger: Ledger, demand: Demand) -> Refusal | None:
        """The first share that the policy refuses."""
        for share in demand.shares:
            found = self._rules.refuses(ledger, demand.reduced_to(share))
            if found:
                return f"shares.{share.name}.{found[0]}", found[1]
        return None

    def choose(self, ledger: Ledger, demand: Demand) -> Choice | None:
        """The GPUs of the first node in the order of the policy on which all shares fit."""
        best = self._rules.choose(ledger, _lead(demand))
        if best is None:
            return None
        place_on = _Search(ledger, demand, self._rules).place_on
        placed = place_on(best.node)
        if placed is not None:
            return _choice(ledger, demand, best.node, placed)
        first = self._ranking(ledger, demand).first(demand.nodes)
        if first is None:
            return None
        _, node = first
        placed = place_on(node)
        assert placed is not None, "the ranking has the nodes on which all shares fit"
        return _choice(ledger, demand, node, placed)

    def score(self, ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
        """The scores for the largest share, of those nodes on which all shares fit."""
        ranked = self._ranking(ledger, demand).of
        return {name: ranked[name][0] for name in nodes if name in ranked}

    def prefer(self, node: Node, devices: Collection[Device]) -> Preference:
        """As the policy does."""
        return self._rules.prefer(node, devices)

    def explain(
        self,
        state: State,
        demand: Demand,
        choice: Choice | None = None,
        infeasible: Refusal = FEASIBLE,
    ) -> dict[str, str]:
        """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
        return reasons.explain(state, demand, choice, infeasible)

    def _ranking(self, ledger: Ledger, demand: Demand) -> NodeRanking[RankedNode]:
        """The nodes on which all shares fit, by their scores for the largest share."""
        place_on = _Search(ledger, demand, self._rules).place_on

        def entries_of(names: Collection[str]) -> dict[str, RankedNode]:
            scores = self._rules.score(ledger, _lead(demand), tuple(names))
            for share in largest_first(demand.shares)[1:]:
                # A node on which a share does not fit even by itself needs no search.
                fitting = self._rules.score(ledger, demand.reduced_to(share), tuple(scores))
                scores = {name: score for name, score in scores.items() if name in fitting}
            return {name: (score, name) for name, score in scores.items() if place_on(name)}

        kind = type(self._rules), demand.kind(), is_label_in_use(ledger, demand)
        ranking = ledger.index(NodeRankings).of(kind)
        ranking.refresh(entries_of)
        return ranking


class _Search:
    """The placing of the shares of one demand on the nodes of a ledger."""

    def __init__(self, ledger: Ledger, demand: Demand, rules: Rules) -> None:
        self._nodes = ledger.nodes
        self._demand = demand
        self._rules = rules
        self._devices = ledger.index(NodeDevices)
        self._label_in_use = is_label_in_use(ledger, demand)

    def place_on(self, name: str) -> Placed | None:
        """The GPUs of each share on a node; None if not all shares fit."""
        node, devices = self._nodes[name], self._devices.on(name)
        gpus = [Gpu.of(device) for device in devices if self._may_use(device)]
        if not self._label_in_use:
            gpus += [Gpu.of(device, new=True) for device in _free(node, self._demand)]
        return place(self._demand, gpus, self._rules.prefer(node, devices))

    def _may_use(self, device: Device) -> bool:
        """Whether the demand may use a device, if it has room."""
        demand = self._demand
        return (
            takes_holders(device)
            and demand.model in ("", device.model)
            and labels_admit(device, demand, label_in_use=self._label_in_use)
        )


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


def _choice(ledger: Ledger, demand: Demand, node: str, placed: Placed) -> Choice:
    """The placed shares, with ids for the new devices."""
    units = [(share.name, gpu) for share in demand.shares for gpu in placed[share.name]]
    used = {gpu.device.id: gpu.before for _, gpu in units if gpu.new}
    ids = opening.new_ids(ledger, demand)
    opened = {
        search_id: msgspec.structs.replace(device, id=next(ids))
        for search_id, device in sorted(used.items())
    }
    return Choice(
        node,
        tuple(opened.get(gpu.device.id, gpu.before) for _, gpu in units),
        tuple(opened.values()),
        tuple(name for name, _ in units),
    )
