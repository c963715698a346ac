"""Scores each node by the GPUs that topology would choose.

The score is what the policy compares them by. For a device in use it begins with 0, then come
compute and memory left; for idle GPUs it begins with 1, for some that a device plugin selects with
2, then comes the score of the set. All end with the free cores of the node, its name and the
numbers of the GPUs.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from kubeshare.core.constraints.checks import groups
from kubeshare.core.constraints.device_search import DeviceSearch, SortedDevices
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_summaries import NodeSummaries
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.scoring import Score
from kubeshare.core.policies.topology.index import TopologyIndex
from kubeshare.core.policies.topology.node_state import DemandKind, NodeState, whole_gpus

_MAX_KINDS: Final = 64


class DevicesInUse(NodeSummaries[SortedDevices]):
    """The devices of each node that are in use, by best fit."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        state = NodeState(node, devices)
        usable = [
            (number, device)
            for number, device in state.devices.items()
            if not device.idle and groups(device)
        ]
        return SortedDevices.of(
            ((0, each.compute_left, each.memory_left, state.free, state.key, number), each)
            for number, each in usable
        )


class IdleSets(NamedTuple):
    """A node's best sets of idle GPUs.

    Attributes:
        state: the state of the node.
        scores: kind of demand → the score of the best set, as far as computed.
    """

    state: NodeState
    scores: dict[DemandKind, Score | None]


class IdleDevices(NodeSummaries[IdleSets]):
    """The sets of idle GPUs of each node."""

    def summarise(self, node: Node, devices: Collection[Device]) -> IdleSets:
        """Forget the scores of a node."""
        return IdleSets(NodeState(node, devices), {})


def score_short(ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
    """The scores of the nodes where a demand in the short form fits."""
    search = DeviceSearch(ledger, demand)
    scores = search.keys
    whole = whole_gpus(demand)
    if not whole:
        least = 0 if demand.proportional else demand.request_micros
        search.run(ledger.index(DevicesInUse).refreshed(), nodes, least)
        nodes = [name for name in nodes if name not in scores]
    kind = ledger.index(TopologyIndex).kind(demand, whole)
    # A device with the demand's affinity label is occupied.
    if kind is not None and not search.label_in_use:
        sets_of = ledger.index(IdleDevices).refreshed()
        for name in nodes:
            if name in sets_of:
                score = _idle(sets_of[name], kind)
                if score is not None:
                    scores[name] = score
    return scores


def _idle(sets: IdleSets, kind: DemandKind) -> Score | None:
    """The score of a node's best set of idle GPUs."""
    state, known = sets
    try:
        return known[kind]
    except KeyError:
        if len(known) >= _MAX_KINDS:
            known.clear()
        score = None
        if best := state.best(kind):
            score = 1, best.score, state.free, state.key, best.gpus
        elif best := state.opening(kind):
            score = 2, best.score, state.free, state.key, best.gpus
        known[kind] = score
        return score
