"""Nodes with free physical GPUs, in the order of a policy."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Generic, TypeVar

from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.natural_sort import natural_name

ByCount = tuple[int, str, str]
"""The number of free GPUs of a node, the sort key of its name, and its name."""

ByName = tuple[str, str]
"""The sort key of the name of a node, and its name."""

Position = TypeVar("Position", ByCount, ByName)


class FreeGpuNodes(Generic[Position]):
    """For each kind of GPU the nodes with a free one, in order.

    Args:
        nodes: the initial nodes.
        position: the sort key of a node, which ends with its name.
    """

    def __init__(self, nodes: Iterable[Node], position: Callable[[Node], Position]) -> None:
        self._position: Callable[[Node], Position] = position
        self._sorted: dict[FreeGpu, list[Position]] = defaultdict(list)
        for node in nodes:
            for kind in set(node.free):
                self._sorted[kind].append(position(node))
        for entries in self._sorted.values():
            entries.sort()

    @property
    def kinds(self) -> Iterable[FreeGpu]:
        """All kinds of GPUs that are free, or once were."""
        return self._sorted

    def changed(self, before: Node | None, after: Node | None) -> None:
        """Update the entries of a node that was added, changed or removed."""
        old, new = _free(before), _free(after)
        if old == new:
            return
        if before:
            position = self._position(before)
            for kind in set(old):
                entries = self._sorted[kind]
                del entries[bisect_left(entries, position)]
        if after:
            for kind in set(new):
                insort(self._sorted[kind], self._position(after))

    def first(self, kind: FreeGpu, nodes: Container[str] | None = None) -> Position | None:
        """The position of the first node that has a free GPU of this kind.

        Args:
            kind: the kind of GPU.
            nodes: the nodes to choose from; None for all.
        """
        for found in self._sorted.get(kind, ()):
            if nodes is None or found[-1] in nodes:
                return found
        return None


def _free(node: Node | None) -> tuple[FreeGpu, ...]:
    return node.free if node else ()


def by_count(node: Node) -> ByCount:
    """Sorts nodes by their number of free GPUs, fewest first, then by name."""
    return len(node.free), natural_name(node.name), node.name


def by_name(node: Node) -> ByName:
    """Sorts nodes by name."""
    return natural_name(node.name), node.name
