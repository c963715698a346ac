"""Rankings of all nodes for one kind of demand."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from kubeshare.core.policies.topology.node_state import DemandKind, NodeState
from kubeshare.core.topology.selection import Score
from kubeshare.core.topology.tree import bits

FEW_NODES: Final = 8
"""Up to this many nodes are compared one by one; for more the ranking is searched."""

AT_ONCE: Final = 8
"""If more than one in so many nodes changed, sorting all of them again is cheaper."""

StateOf: TypeAlias = Callable[[str], NodeState | None]

_Idle: TypeAlias = tuple[Score, int, str, int, str]
"""Score, free micros of the node, sort key of the node, the GPUs as bits, name of the node."""

_InUse: TypeAlias = tuple[int, int, str, int, str]
"""Bytes left, free micros and sort key of the node, number of the device, name of the node."""


class IdleRanking:
    """The nodes' best sets of idle devices for one kind of demand, best first.

    Sets of equal score are ordered by the free cores of the node, fewest first, then by name.

    Args:
        kind: the kind of demand.
        nodes: the names of all nodes.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
    """

    def __init__(self, kind: DemandKind, nodes: Iterable[str]) -> None:
        self.stale = set(nodes)
        self._kind = kind
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

    def first(self, nodes: frozenset[str] | None) -> tuple[str, int, Score] | None:
        """Node, GPUs and score of the best entry; `nodes` restricts the nodes, None does not."""
        entries: Iterable[_Idle] = self._entries
        if nodes is not None and len(nodes) <= FEW_NODES:
            entries = sorted(self._of[name] for name in nodes if name in self._of)
        for score, _, _, gpus, name in entries:
            if nodes is None or name in nodes:
                return name, gpus, score
        return None

    def _entry(self, state: NodeState | None) -> _Idle | None:
        best = state.best(self._kind) if state else None
        if state is None or best is None:
            return None
        return (best[0], state.free, state.key, best[1], state.name)


class InUseRanking:
    """The devices of one model with holders and room: least compute left, then least memory.

    Equal ones are ordered by the free cores of the node, fewest first, its name, the number.

    Args:
        model: the model, "" for any.
        nodes: the names of all nodes.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
    """

    def __init__(self, model: str, nodes: Iterable[str]) -> None:
        self.stale = set(nodes)
        self._model = model
        self._compute: list[int] = []  # the distinct amounts left, ascending
        self._rows: dict[int, list[_InUse]] = {}  # compute left -> devices, sorted
        self._of: dict[str, list[tuple[int, _InUse]]] = {}  # node -> its entries

    def refresh(self, state_of: StateOf) -> None:
        """Recompute the entries of changed nodes."""
        if len(self.stale) * AT_ONCE > len(self._of):
            self._refresh_at_once(state_of)
        for name in self.stale:
            for compute, entry in self._of.pop(name, ()):
                self._remove(compute, entry)
            for compute, entry in self._compute_entries(name, state_of):
                self._add(compute, entry)
        self.stale.clear()

    def fitting(
        self, compute: int, memory: int, nodes: frozenset[str] | None
    ) -> Iterator[tuple[str, int]]:
        """Node and number of each device with so much left, best fit first."""
        if nodes is not None and len(nodes) <= FEW_NODES:
            found = sorted(entry for name in nodes for entry in self._of.get(name, ()))
            for left, row in found:
                if left >= compute and row[0] >= memory:
                    yield row[4], row[3]
            return
        for left in self._compute[bisect_left(self._compute, compute) :]:
            rows = self._rows[left]
            if rows[-1][0] < memory:
                continue
            for at in range(bisect_left(rows, (memory,)), len(rows)):
                if nodes is None or rows[at][4] in nodes:
                    yield rows[at][4], rows[at][3]

    def _refresh_at_once(self, state_of: StateOf) -> None:
        """Recompute the entries of many nodes, and sort all again."""
        for name in self.stale:
            self._of.pop(name, None)
            self._compute_entries(name, state_of)
        self.stale.clear()
        rows: dict[int, list[_InUse]] = defaultdict(list)
        for entries in self._of.values():
            for compute, entry in entries:
                rows[compute].append(entry)
        for row in rows.values():
            row.sort()
        self._rows = dict(rows)
        self._compute = sorted(rows)

    def _compute_entries(self, name: str, state_of: StateOf) -> list[tuple[int, _InUse]]:
        """Compute and store the entries of one node."""
        state = state_of(name)
        if state is None or not state.in_use:
            return []
        entries = self._of[name] = []
        for number in bits(state.in_use):
            device = state.devices[number]
            if self._model in ("", device.model):
                entry = (device.memory_left, state.free, state.key, number, name)
                entries.append((device.compute_left, entry))
        return entries

    def _add(self, compute: int, entry: _InUse) -> None:
        rows = self._rows.get(compute)
        if rows is None:
            rows = self._rows[compute] = []
            insort(self._compute, compute)
        insort(rows, entry)

    def _remove(self, compute: int, entry: _InUse) -> None:
        rows = self._rows[compute]
        del rows[bisect_left(rows, entry)]
        if not rows:
            del self._rows[compute]
            del self._compute[bisect_left(self._compute, compute)]
