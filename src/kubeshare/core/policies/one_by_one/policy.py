"""Rules of policies that take GPUs in a fixed order.

For one GPU the policy's index finds the first device of the cluster. Equal shares of several GPUs
are placed all or none, on different GPUs of one node and one model. On each node they are taken
one by one in the order of the policy, new vGPUs last; of the nodes with enough GPUs the policy
takes the best.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import Admitted, admitted
from kubeshare.core.constraints.device_search import DeviceSearch, Found, Key, SortedDevices
from kubeshare.core.constraints.named import named_devices
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index.node_ranking import NodeRanking, NodeRankings
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import opening
from kubeshare.core.policies.one_by_one.index import OneByOneIndex
from kubeshare.core.policies.rules import Choice, RankedNode, Refusal, Rules
from kubeshare.core.policies.scoring import Score
from kubeshare.core.policies.several_shares.search import Gpu, Preference, one_by_one

Pass: TypeAlias = tuple[Mapping[str, SortedDevices], int]
"""The devices of each node that are searched next, and the least amount of those that fit."""


class Pick(NamedTuple):
    """Enough GPUs of one model for a demand for several.

    Attributes:
        rank: the sort key, best first; no two picks have the same.
        node: the name of their node.
        taken: the existing devices among them.
        new: the kinds of the free GPUs to open as new vGPUs.
    """

    rank: Score
    node: str
    taken: Sequence[Found]
    new: Sequence[FreeGpu]


_BY_RANK: Final = attrgetter("rank")


class OneByOne(Rules):
    """A policy with a total order of all GPUs."""

    @abstractmethod
    def first(self, index: OneByOneIndex[Any], demand: Demand, allowed: Admitted) -> Device | None:
        """The first device of the cluster that fits a demand for one GPU.

        Args:
            index: the policy's index.
            demand: the demand.
            allowed: the groups of devices that it may use.
        """

    @abstractmethod
    def index(self, ledger: Ledger) -> OneByOneIndex[Any]:
        """The policy's index of a ledger."""

    @abstractmethod
    def key(self, device: Device, before: Device) -> Key:
        """The sort key of a device.

        Args:
            device: the device, perhaps with shares of the demand itself.
            before: the device without them.
        """

    @abstractmethod
    def passes(self, ledger: Ledger, demand: Demand, *, label_in_use: bool) -> list[Pass]:
        """The devices that a demand may use; no key is less than one of an earlier pass."""

    @abstractmethod
    def score_new(self, node: Node, smallest: FreeGpu) -> Score:
        """The score of a node where a new vGPU is opened on the smallest free GPU that fits."""

    @abstractmethod
    def rank(self, node: Node, taken: Sequence[Found], new: Sequence[FreeGpu]) -> Score:
        """See :class:`Pick`."""

    def refuses(self, ledger: Ledger, demand: Demand) -> Refusal | None:
        """The GPUID, if no vGPU of it can be used."""
        return opening.infeasible_id(ledger, demand) if demand.device_id else None

    def choose(self, ledger: Ledger, demand: Demand) -> Choice | None:
        """The first GPU of the cluster, or the best pick."""
        if demand.count > 1:
            return self._choose_several(ledger, demand)
        if demand.device_id:
            named = named_devices(ledger, demand)
            if named is not None:
                ordered = sorted(named, key=self._key_of)
                return Choice(ordered[0].node, (ordered[0],)) if ordered else None
        else:
            allowed = admitted(demand, label_in_use=is_label_in_use(ledger, demand))
            first = self.first(self.index(ledger), demand, allowed)
            if first is not None:
                return Choice(first.node, (first,))
            if not allowed.new:
                return None
        free = self.index(ledger).free_gpu(demand)
        if free is None:
            return None
        node, kind = free
        new = opening.new_devices(ledger, demand, ledger.nodes[node], (kind,))
        return Choice(node, new, new)

    def score(self, ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
        """The key of the first GPU of each node, or the rank of its best pick."""
        if demand.count > 1:
            ranked = self._ranking(ledger, demand).of
            return {name: ranked[name][0] for name in nodes if name in ranked}
        scores: dict[str, Score] = {}
        if demand.device_id:
            named = named_devices(ledger, demand)
            if named is not None:
                named.sort(key=self._key_of, reverse=True)
                return {each.node: self._key_of(each) for each in named if each.node in nodes}
        else:
            search = DeviceSearch(ledger, demand)
            scores = search.keys
            for devices_of, least in self.passes(ledger, demand, label_in_use=search.label_in_use):
                search.run(devices_of, nodes, least)
                nodes = [name for name in nodes if name not in scores]
            if search.label_in_use:
                return scores
        for name, kinds in _free(ledger, demand, nodes):
            scores[name] = self.score_new(ledger.nodes[name], kinds[0])
        return scores

    def prefer(self, node: Node, devices: Collection[Device]) -> Preference:
        """Existing vGPUs in the order of the policy, then new ones."""
        del node, devices  # only the GPUs themselves matter

        def order(gpu: Gpu) -> tuple[object, ...]:
            return gpu.new, self.key(gpu.device, gpu.before)

        return one_by_one(order)

    def _choose_several(self, ledger: Ledger, demand: Demand) -> Choice | None:
        first = self._ranking(ledger, demand).first(demand.nodes)
        if first is None:
            return None
        _, node = first
        pick = min(self._picks(ledger, demand, (node,)), key=_BY_RANK)
        new = opening.new_devices(ledger, demand, ledger.nodes[node], pick.new)
        return Choice(node, (*[found.device for found in pick.taken], *new), new)

    def _ranking(self, ledger: Ledger, demand: Demand) -> NodeRanking[RankedNode]:
        """All nodes by their best picks."""

        def entries_of(names: Collection[str]) -> dict[str, RankedNode]:
            picks = sorted(self._picks(ledger, demand, names), key=_BY_RANK, reverse=True)
            return {pick.node: (pick.rank, pick.node) for pick in picks}  # the best comes last

        kind = type(self), demand.kind(), is_label_in_use(ledger, demand)
        ranking = ledger.index(NodeRankings).of(kind)
        ranking.refresh(entries_of)
        return ranking

    def _picks(self, ledger: Ledger, demand: Demand, nodes: Collection[str]) -> Iterator[Pick]:
        """For each node and model with enough GPUs, the first ones."""
        search, count = DeviceSearch(ledger, demand), demand.count
        for devices_of, least in self.passes(ledger, demand, label_in_use=search.label_in_use):
            search.run(devices_of, nodes, least)
        fitting = search.several
        free = {} if search.label_in_use else dict(_free(ledger, demand, nodes))
        for name in fitting.keys() | free.keys():
            here, kinds = fitting.get(name, {}), free.get(name, [])
            for model in here.keys() | {kind.model for kind in kinds}:
                taken = here.get(model, [])[:count]
                new = [kind for kind in kinds if kind.model == model][: count - len(taken)]
                if len(taken) + len(new) == count:
                    rank = self.rank(ledger.nodes[name], taken, new)
                    yield Pick(rank, name, taken, new)

    def _key_of(self, device: Device) -> Key:
        return self.key(device, device)


def _free(
    ledger: Ledger, demand: Demand, nodes: Iterable[str]
) -> Iterator[tuple[str, list[FreeGpu]]]:
    """The nodes with free GPUs that fit a demand, and their kinds, the smallest first."""
    known: dict[tuple[FreeGpu, ...], list[FreeGpu]] = {}
    for name in nodes:
        node = ledger.nodes.get(name)
        if node is None or not node.free:
            continue
        kinds = known.get(node.free)
        if kinds is None:
            kinds = known[node.free] = opening.suitable(node.free, demand)
        if kinds:
            yield name, kinds
