"""The index of the topology policy: finds the best nodes first.

The tree of the Gaia paper spans the cluster. Above the nodes it has nothing that a set of GPUs
could share, so the best set of the cluster is the best among the nodes' best sets, which
rankings keep sorted (:mod:`kubeshare.core.ledger.index.node_ranking`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

import msgspec

from kubeshare.core.constraints.checks import Group
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index import node_ranking
from kubeshare.core.ledger.index.node_ranking import NodeRanking, NodeRankings
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.rules import Choice
from kubeshare.core.policies.topology.node_state import (
    Candidate,
    DemandKind,
    NodeState,
    OpeningScore,
)
from kubeshare.core.policies.topology.rankings import InUseRanking, closest_in_use
from kubeshare.core.topology.selection import Score
from kubeshare.core.units import MICROS

_Idle: TypeAlias = tuple[Score | OpeningScore, int, str, int, str]
"""Score, free micros of the node, sort key of the node, the GPUs as bits, name of the node."""


class Placement(Choice, frozen=True):
    """The GPUs chosen for a demand, in the order of their numbers.

    In the index, a free GPU that was selected is a device without an id, and none is new yet.

    Attributes:
        score: the score of idle GPUs; None for a device that is in use already.
        opened: the kinds of further free GPUs, of which the device plugin selects some.
    """

    score: Score | OpeningScore | None = None
    opened: tuple[FreeGpu, ...] = ()


class TopologyIndex:
    """The states of all nodes, and the rankings of recent kinds of demands."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes: dict[str, Node] = dict(ledger.nodes)
        self._devices: dict[str, dict[str, Device]] = {}  # node -> id -> device
        for device in ledger.devices.values():
            self._devices.setdefault(device.node, {})[device.id] = device
        self._states: dict[str, NodeState] = {}
        self._rankings = ledger.index(NodeRankings)
        self._in_use = InUseRanking(self._nodes, full=False)
        self._full = InUseRanking(self._nodes, full=True)
        # size of a GPU's memory -> how many devices and free GPUs have it
        self._sizes: Counter[int] = Counter(_sizes(ledger.devices.values()))
        for node in ledger.nodes.values():
            self._sizes.update(_sizes(node.free))
        self._sorted_sizes = sorted(self._sizes)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the state of a device's node."""
        if before and after and before.is_same_gpu(after):
            self._devices[after.node][after.id] = after
            state = self._states.get(after.node)
            if state:
                state.update(after)
            self._stale(after.node)
            return
        self._update_sizes([before] if before else (), [after] if after else ())
        if before:
            on_node = self._devices[before.node]
            del on_node[before.id]
            if not on_node:
                del self._devices[before.node]
            self._rebuild(before.node)
        if after:
            self._devices.setdefault(after.node, {})[after.id] = after
            self._rebuild(after.node)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Rebuild the state of a node."""
        self._update_sizes(before.free if before else (), after.free if after else ())
        if before:
            del self._nodes[before.name]
            self._rebuild(before.name)
        if after:
            self._nodes[after.name] = after
            self._rebuild(after.name)

    def in_use(
        self, demand: Demand, among: tuple[Group, ...], *, label_in_use: bool
    ) -> Placement | None:
        """Fragment: the device in use with the least left that fits the demand.

        Args:
            demand: the demand.
            among: the groups of devices that it may use.
            label_in_use: whether a device has its affinity label.
        """
        nodes = self._nodes if demand.nodes is None else demand.nodes
        if len(nodes) <= node_ranking.FEW_NODES:
            states = [state for name in nodes if (state := self._state(name)) is not None]
            device = closest_in_use(states, demand, label_in_use=label_in_use)
            return Placement(device.node, (device,)) if device is not None else None
        for ranking in (self._full, self._in_use) if _may_be_nothing(demand) else (self._in_use,):
            ranking.refresh(self._state)
            device = ranking.first(demand, among)
            if device is not None:
                return Placement(device.node, (device,))
        return None

    def idle(self, demand: Demand, count: int) -> Placement | None:
        """Fragment's fallback (count 0), Singular (1) and Link: the best GPUs of known place.

        These are idle devices, and free GPUs that can be selected.
        """
        return self._first(NodeState.best, demand, count)

    def opening(self, demand: Demand, count: int) -> Placement | None:
        """Where new vGPUs are opened on GPUs that a device plugin selects; see :meth:`idle`."""
        found = self._first(NodeState.opening, demand, count)
        kind = self.kind(demand, count)
        if found is None or kind is None:
            return None
        best = self._states[found.node].opening(kind)
        return msgspec.structs.replace(found, opened=best.opened if best else ())

    def _first(
        self,
        best_of: Callable[[NodeState, DemandKind], Candidate | None],
        demand: Demand,
        count: int,
    ) -> Placement | None:
        kind = self.kind(demand, count)
        if kind is None:
            return None

        def entries_of(names: Collection[str]) -> dict[str, _Idle]:
            entries = {}
            for name in names:
                state = self._state(name)
                best = best_of(state, kind) if state else None
                if state is not None and best is not None:
                    entries[name] = (best.score, state.free, state.key, best.gpus, name)
            return entries

        ranking: NodeRanking[_Idle] = self._rankings.of((best_of, kind))
        ranking.refresh(entries_of)
        found = ranking.first(demand.nodes)
        if found is None:
            return None
        score, _, _, gpus, name = found
        return Placement(name, self._states[name].chosen(gpus), score=score)

    def kind(self, demand: Demand, count: int) -> DemandKind | None:
        """What determines the idle GPUs for a demand; None if no GPU is large enough."""
        memory = self._threshold(demand)
        return None if memory is None else DemandKind(count, demand.model, memory)

    def _threshold(self, demand: Demand) -> int | None:
        """The least size of a GPU that fits, 0 for any; None if no GPU is large enough."""
        if demand.memory.bytes is None:
            return 0 if demand.memory.on(MICROS) <= MICROS else None
        sizes = self._sorted_sizes
        at = bisect_left(sizes, demand.memory.bytes)
        if at == len(sizes):
            return None
        return sizes[at] if at else 0

    def _update_sizes(
        self, before: Iterable[Device | FreeGpu], after: Iterable[Device | FreeGpu]
    ) -> None:
        known = len(self._sizes)
        self._sizes.update(_sizes(after))
        is_new = len(self._sizes) != known
        for size in _sizes(before):
            self._sizes[size] -= 1
            if not self._sizes[size]:
                del self._sizes[size]
                is_new = True
        if is_new:
            self._sorted_sizes = sorted(self._sizes)

    def _state(self, name: str) -> NodeState | None:
        """The present state of a node; None if there is no such node."""
        state = self._states.get(name)
        if state is None:
            node = self._nodes.get(name)
            if node is None:
                return None
            devices = self._devices.get(name, {})
            state = self._states[name] = NodeState(node, devices.values())
        return state

    def _rebuild(self, name: str) -> None:
        self._states.pop(name, None)
        self._stale(name)

    def _stale(self, name: str) -> None:
        self._in_use.stale.add(name)
        self._full.stale.add(name)


def _may_be_nothing(demand: Demand) -> bool:
    """Whether a demand may be for no compute and no memory of some GPU, a share rounded down."""
    return not demand.request_micros and not demand.memory.bytes


def _sizes(gpus: Iterable[Device | FreeGpu]) -> list[int]:
    return [gpu.memory_bytes for gpu in gpus]
