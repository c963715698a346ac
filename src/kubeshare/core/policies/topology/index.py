"""The index of the topology policy: finds the best nodes first.

The tree of the Gaia paper spans the cluster. Above the nodes it has nothing that a set of GPUs
could share, so the best set of the cluster is the best among the nodes' best sets. A *ranking*
keeps those sorted for one kind of demand: its first entry is the answer. A change on a node
makes one entry of each ranking stale; the next query of a ranking refreshes its stale entries,
so an unused ranking costs nothing.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kubeshare.core.constraints.checks import Group
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology import rankings
from kubeshare.core.policies.topology.node_state import DemandKind, NodeState, OpeningScore
from kubeshare.core.policies.topology.rankings import (
    BestOf,
    IdleRanking,
    InUseRanking,
    closest_in_use,
)
from kubeshare.core.topology.selection import Score
from kubeshare.core.units import MICROS

_MAX_KEPT: Final = 64
"""The most kinds of demands in a cache; one more replaces the oldest."""


class Placement(NamedTuple):
    """The GPUs chosen for a demand, of one node.

    Attributes:
        node: the name of the node.
        devices: in the order of their numbers; a free GPU that was selected has no id.
        score: the score of idle GPUs; None for a device that is in use already.
        opened: the kinds of further free GPUs, of which the device plugin selects some.
    """

    node: str
    devices: tuple[Device, ...]
    score: Score | OpeningScore | None
    opened: tuple[FreeGpu, ...] = ()


class TopologyIndex:
    """The states of all nodes, and the rankings of recent kinds of demands."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes: dict[str, Node] = dict(ledger.nodes)
        self._devices: dict[str, dict[str, Device]] = {}  # node -> id -> device
        for device in ledger.devices.values():
            self._devices.setdefault(device.node, {})[device.id] = device
        self._states: dict[str, NodeState] = {}
        self._idle: dict[DemandKind, IdleRanking] = {}
        self._opening: dict[DemandKind, IdleRanking] = {}
        self._in_use = InUseRanking(self._nodes)
        self._infeasible: dict[tuple[str, Memory, int], tuple[str, str] | None] = {}
        # size of a GPU's memory -> how many devices and free GPUs have it
        self._sizes: Counter[int] = Counter(_sizes(ledger.devices.values()))
        for node in ledger.nodes.values():
            self._sizes.update(_sizes(node.free))
        self._sorted_sizes = sorted(self._sizes)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the state of a device's node."""
        if before and after and _identity(before) == _identity(after):
            self._devices[after.node][after.id] = after
            state = self._states.get(after.node)
            if state:
                state.update(after)
            self._stale(after.node)
            return
        self._infeasible.clear()
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
        self._infeasible.clear()
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
        nodes = demand.nodes
        if nodes is not None and len(nodes) <= rankings.FEW_NODES:
            states = [state for name in nodes if (state := self._state(name)) is not None]
            device = closest_in_use(states, demand, label_in_use=label_in_use)
        else:
            self._in_use.refresh(self._state)
            device = self._in_use.first(demand, among)
        return Placement(device.node, (device,), None) if device is not None else None

    def idle(self, demand: Demand, count: int) -> Placement | None:
        """Fragment's fallback (count 0), Singular (1) and Link: the best GPUs of known place.

        These are idle devices, and free GPUs that can be selected.
        """
        return self._first(self._idle, NodeState.best, demand, count)

    def opening(self, demand: Demand, count: int) -> Placement | None:
        """Where new vGPUs are opened on GPUs that a device plugin selects; see :meth:`idle`."""
        found = self._first(self._opening, NodeState.opening, demand, count)
        kind = self.kind(demand, count)
        if found is None or kind is None:
            return None
        best = self._states[found.node].opening(kind)
        return found._replace(opened=best.opened if best else ())

    def _first(
        self, kept: dict[DemandKind, IdleRanking], best_of: BestOf, demand: Demand, count: int
    ) -> Placement | None:
        kind = self.kind(demand, count)
        if kind is None:
            return None
        ranking = kept.get(kind)
        if ranking is None:
            _evict_oldest(kept)
            ranking = kept[kind] = IdleRanking(kind, self._nodes, best_of)
        ranking.refresh(self._state)
        found = ranking.first(demand.nodes)
        if found is None:
            return None
        name, gpus, score = found
        return Placement(name, self._states[name].chosen(gpus), score)

    def kind(self, demand: Demand, count: int) -> DemandKind | None:
        """What determines the idle GPUs for a demand; None if no GPU is large enough."""
        memory = self._threshold(demand)
        return None if memory is None else DemandKind(count, demand.model, memory)

    def infeasible(self, ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
        """:func:`kubeshare.core.diagnosis.feasibility.infeasible`, cached by the index."""
        kind = (demand.model, demand.memory, demand.count)
        if kind not in self._infeasible:
            _evict_oldest(self._infeasible)
            self._infeasible[kind] = feasibility.infeasible(ledger, demand)
        return self._infeasible[kind]

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
        for idle in self._idle.values():
            idle.stale.add(name)
        for opening in self._opening.values():
            opening.stale.add(name)
        self._in_use.stale.add(name)


def _identity(device: Device) -> tuple[object, ...]:
    """What identifies a device, without its holders and health."""
    return (device.node, device.index, device.row, device.model, device.memory_bytes)


def _sizes(gpus: Iterable[Device | FreeGpu]) -> list[int]:
    return [gpu.memory_bytes for gpu in gpus]


def _evict_oldest(cache: dict[Any, Any]) -> None:
    """Drop the oldest entry of a full cache."""
    if len(cache) >= _MAX_KEPT:
        del cache[next(iter(cache))]
