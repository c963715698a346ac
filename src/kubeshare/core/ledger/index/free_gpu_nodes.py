"""Nodes with free physical GPUs, sorted: where a new vGPU is opened."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Container, Iterable

from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.natural_sort import natural


class FreeGpuNodes:
    """For each kind of GPU the nodes that have one free, those with the fewest free first.

    Args:
        nodes: to begin with.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._sorted: dict[FreeGpu, list[tuple[int, str, str]]] = defaultdict(list)
        for node in nodes:
            for kind in set(node.free):
                self._sorted[kind].append(sort_key(node))
        for places in self._sorted.values():
            places.sort()

    def changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went."""
        was, now = _free(before), _free(after)
        if was == now:
            return
        if before:
            for kind in set(was):
                places = self._sorted[kind]
                del places[bisect_left(places, sort_key(before))]
        if after:
            for kind in set(now):
                insort(self._sorted[kind], sort_key(after))

    def first(
        self, kind: FreeGpu, nodes: Container[str] | None = None
    ) -> tuple[int, str, str] | None:
        """The node with the fewest free GPUs that has one of this kind.

        Args:
            kind: of the GPU.
            nodes: it is one of them; None asks nothing.

        Returns:
            its :func:`sort_key`.
        """
        for found in self._sorted.get(kind, ()):
            if nodes is None or found[2] in nodes:
                return found
        return None


def _free(node: Node | None) -> tuple[FreeGpu, ...]:
    return node.free if node else ()


def sort_key(node: Node) -> tuple[int, str, str]:
    """How many GPUs are free on a node, a text by which equals sort, and its name."""
    return len(node.free), natural(node.name), node.name
