"""Rankings of nodes for kinds of demands.

A *ranking* keeps the entries of all nodes for one kind of demand sorted: the first one is the
answer. A change on a node makes one entry of each ranking stale; the next query of a ranking
refreshes its stale entries, so an unused ranking costs next to nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger

AT_ONCE: Final = 8
"""If more than one in so many nodes changed, sorting all of them again is cheaper."""

FEW_NODES: Final = 8
"""Up to this many nodes are compared one by one; for more the ranking or index is searched."""

_MAX_KEPT: Final = 64

Entry = TypeVar("Entry", bound=tuple[Any, ...])
"""Sort key, and at the end the name of the node."""


class NodeRanking(Generic[Entry]):
    """The entries of the nodes that have one, the least first.

    Args:
        nodes: the names of all nodes.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
        of: node → its entry at the last refresh.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self.stale = set(nodes)
        self.of: dict[str, Entry] = {}
        self._entries: list[Entry] = []

    def refresh(self, entries_of: Callable[[Collection[str]], Mapping[str, Entry]]) -> None:
        """Replace the entries of changed nodes.

        Args:
            entries_of: the present entries of those of the named nodes that have one.
        """
        if not self.stale:
            return
        present = entries_of(self.stale)
        at_once = len(self.stale) * AT_ONCE > len(self._entries)
        for name in self.stale:
            before, entry = self.of.pop(name, None), present.get(name)
            if entry is not None:
                self.of[name] = entry
            if not at_once and before != entry:
                if before is not None:
                    del self._entries[bisect_left(self._entries, before)]
                if entry is not None:
                    insort(self._entries, entry)
        if at_once:
            self._entries = sorted(self.of.values())
        self.stale.clear()

    def first(self, nodes: frozenset[str] | None) -> Entry | None:
        """The first entry; `nodes` restricts the nodes, None does not."""
        if nodes is None:
            return self._entries[0] if self._entries else None
        if len(nodes) <= FEW_NODES:
            return min((self.of[name] for name in nodes if name in self.of), default=None)
        return next((entry for entry in self._entries if entry[-1] in nodes), None)


class NodeRankings:
    """An index of a ledger: the rankings for recent kinds of demands.

    One too many replaces the one that was not used for longest.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._rankings: dict[Hashable, NodeRanking[Any]] = {}

    def __len__(self) -> int:
        return len(self._rankings)

    def of(self, kind: Hashable) -> NodeRanking[Any]:
        """The ranking for a kind of demand, which names its policy too."""
        ranking = self._rankings.pop(kind, None)
        if ranking is None:
            if len(self._rankings) >= _MAX_KEPT:
                del self._rankings[next(iter(self._rankings))]
            ranking = NodeRanking(self._nodes)
        self._rankings[kind] = ranking
        return ranking

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Mark the entries of a device's node as stale."""
        if before is not None:
            self._changed(before.node)
        if after is not None and (before is None or before.node != after.node):
            self._changed(after.node)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Mark the entries of a node as stale."""
        node = before or after
        if node is not None:
            self._changed(node.name)

    def _changed(self, node: str) -> None:
        for ranking in self._rankings.values():
            ranking.stale.add(node)
