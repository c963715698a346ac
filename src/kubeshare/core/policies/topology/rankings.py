"""Rankings of all nodes for one kind of demand."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kubeshare.core.constraints.checks import Group, has_room, labels_admit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.group_trees import GroupTrees
from kubeshare.core.policies.topology.node_state import (
    Candidate,
    DemandKind,
    NodeState,
    OpeningScore,
)
from kubeshare.core.topology.selection import Score
from kubeshare.core.topology.tree import bits

FEW_NODES: Final = 8
"""Up to this many nodes are compared one by one; for more the ranking is searched."""

AT_ONCE: Final = 8
"""If more than one in so many nodes changed, sorting all of them again is cheaper."""

StateOf: TypeAlias = Callable[[str], NodeState | None]

BestOf: TypeAlias = Callable[[NodeState, DemandKind], Candidate | None]

_Idle: TypeAlias = tuple[Score | OpeningScore, int, str, int, str]
"""Score, free micros of the node, sort key of the node, the GPUs as bits, name of the node."""

_BITS: Final = 64


class IdleRanking:
    """The nodes' best sets of idle GPUs for one kind of demand, best first.

    Sets of equal score are ordered by the free cores of the node, fewest first, then by name.

    Args:
        kind: the kind of demand.
        nodes: the names of all nodes.
        best_of: the best set of a node; those of two nodes have comparable scores.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
    """

    def __init__(self, kind: DemandKind, nodes: Iterable[str], best_of: BestOf) -> None:
        self.stale = set(nodes)
        self._kind = kind
        self._best_of = best_of
        self._entries: list[_Idle] = []
        self._of: dict[str, _Idle] = {}  # node -> its entry

    def refresh(self, state_of: StateOf) -> None:
        """Recompute the entries of changed nodes."""
        if not self.stale:
            return
        at_once = len(self.stale) * AT_ONCE > len(self._entries)
        for name in self.stale:
            entry = self._entry(state_of(name))
            before = self._of.pop(name, None)
            if entry:
                self._of[name] = entry
            if not at_once:
                if before:
                    del self._entries[bisect_left(self._entries, before)]
                if entry:
                    insort(self._entries, entry)
        if at_once:
            self._entries = sorted(self._of.values())
        self.stale.clear()

    def first(self, nodes: frozenset[str] | None) -> tuple[str, int, Score | OpeningScore] | None:
        """Node, GPUs and score of the best entry; `nodes` restricts the nodes, None does not."""
        entries: Iterable[_Idle] = self._entries
        if nodes is not None and len(nodes) <= FEW_NODES:
            entries = sorted(self._of[name] for name in nodes if name in self._of)
        for score, _, _, gpus, name in entries:
            if nodes is None or name in nodes:
                return name, gpus, score
        return None

    def _entry(self, state: NodeState | None) -> _Idle | None:
        best = self._best_of(state, self._kind) if state else None
        if state is None or best is None:
            return None
        return (best.score, state.free, state.key, best.gpus, state.name)


class InUseRanking:
    """The devices with holders and room for more: least compute left, then least memory.

    Equal ones are ordered by the free cores of the node, fewest first, its name, the number.

    Args:
        nodes: the names of all nodes.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self.stale = set(nodes)
        self._trees = GroupTrees(self._entry)
        self._of: dict[str, list[Device]] = {}  # node -> its devices in the trees
        self._orders: dict[str, str] = {}  # GPUID -> its sort key among equal devices

    def refresh(self, state_of: StateOf) -> None:
        """Update the devices of changed nodes."""
        at_once = len(self.stale) * AT_ONCE > len(self._of)
        # All are removed first, since a device may have moved from one node to another.
        for name in self.stale:
            for device in self._of.pop(name, ()):
                if not at_once:
                    self._trees.remove(device)
                del self._orders[device.id]
        for name in self.stale:
            added = self._in_use(state_of(name))
            if added:
                self._of[name] = added
            if not at_once:
                for device in added:
                    self._trees.add(device)
        if at_once:
            known = (device for devices in self._of.values() for device in devices)
            self._trees = GroupTrees(self._entry, known)
        self.stale.clear()

    def first(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The device in these groups that fits a demand for a fraction of one GPU best."""
        best: tuple[int, str] | None = None
        found: Device | None = None
        for group, total, tree in self._trees.of(demand.model, among):
            memory = demand.memory.on(total)
            first = tree.first(
                demand.compute_on(total) << _BITS | memory,
                memory,
                # A group without anti-affinity labels needs no check.
                without=demand.anti_affinity if group[2] else "",
                nodes=demand.nodes,
            )
            if first is not None:
                position = _number(first), self._orders[first.id]
                if best is None or position < best:
                    best, found = position, first
        return found

    def _in_use(self, state: NodeState | None) -> list[Device]:
        """The devices of a node that are in use, with their sort keys stored."""
        if state is None:
            return []
        devices = []
        for number in bits(state.in_use):
            device = state.devices[number]
            self._orders[device.id] = f"{state.free:012}{state.key}\0\0{number:04}"
            devices.append(device)
        return devices

    def _entry(self, _: Group, device: Device) -> Entry:
        return _number(device), self._orders[device.id], device.memory_left, device


def closest_in_use(
    states: Iterable[NodeState], demand: Demand, *, label_in_use: bool
) -> Device | None:
    """What :meth:`InUseRanking.first` finds, by a search of a few nodes.

    Args:
        states: the nodes.
        demand: the demand, for a fraction of one GPU.
        label_in_use: whether a device has its affinity label.
    """
    best: tuple[object, ...] | None = None
    found: Device | None = None
    for state in states:
        for number in bits(state.in_use):
            device = state.devices[number]
            if demand.model not in ("", device.model) or not has_room(device, demand):
                continue
            if labels_admit(device, demand, label_in_use=label_in_use):
                position = (_number(device), state.free, state.key, number)
                if best is None or position < best:
                    best, found = position, device
    return found


def _number(device: Device) -> int:
    """Compute left, then memory left."""
    return device.compute_left << _BITS | device.memory_left
