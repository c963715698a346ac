"""Nodes with free physical GPUs, those with the fewest first."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Container, Iterable

from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.natural_sort import natural


class FreeGpuNodes:
    """For each kind of GPU the nodes with a free one, those with the fewest free GPUs first.

    Args:
        nodes: the initial nodes.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._sorted: dict[FreeGpu, list[tuple[int, str, str]]] = defaultdict(list)
        for node in nodes:
            for kind in set(node.free):
                self._sorted[kind].append(sort_key(node))
        for entries in self._sorted.values():
            entries.sort()

    def changed(self, before: Node | None, after: Node | None) -> None:
        """Update the entries of a node that was added, changed or removed."""
        old, new = _free(before), _free(after)
        if old == new:
            return
        if before:
            for kind in set(old):
                entries = self._sorted[kind]
                del entries[bisect_left(entries, sort_key(before))]
        if after:
            for kind in set(new):
                insort(self._sorted[kind], sort_key(after))

    def first(
        self, kind: FreeGpu, nodes: Container[str] | None = None
    ) -> tuple[int, str, str] | None:
        """The node with the fewest free GPUs that has one of this kind.

        Args:
            kind: the kind of GPU.
            nodes: the nodes to choose from; None for all.

        Returns:
            the node's :func:`sort_key`.
        """
        for found in self._sorted.get(kind, ()):
            if nodes is None or found[2] in nodes:
                return found
        return None


def _free(node: Node | None) -> tuple[FreeGpu, ...]:
    return node.free if node else ()


def sort_key(node: Node) -> tuple[int, str, str]:
    """The number of free GPUs of a node, the sort key of its name, and its name."""
    return len(node.free), natural(node.name), node.name
