"""A sorted tree of devices that finds the first one with enough memory left.

Best fit asks: of the devices with at least this much compute and this much memory
left, which has the least of both? A sorted list finds the compute by bisection and
may then walk past thousands that lack the memory. Here each branch also knows the
most memory that anything below it has left, so that a search enters only branches
that can hold the answer. It is a B+ tree in which a branch and a leaf look alike:
parallel lists, one place an entry.

An entry's place is given by a *number* and, among equal numbers, by a text that
sorts as its id does. They are kept in two lists because comparing integers alone is
several times as fast as comparing tuples, and numbers are seldom equal.

Anti-affinity asks besides that the device lacks a label. A branch that was searched
from end to end for a label in vain remembers how much memory nobody below it has
without that label. Such a bound stays true when entries go, is raised when one
comes, and is learned again by the next search that was misled.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from kubeshare.core.ledger.device import Device

WIDTH: Final = 64
"""The most places of a branch or leaf; a full one is cut into halves."""

BOUNDS: Final = 64
"""The most labels of which a branch remembers a bound."""

Entry: TypeAlias = tuple[int, str, int, Device]
"""An entry's number, the text by which equal numbers sort, its memory, the device."""

Item = TypeVar("Item")


class DeviceTree:
    """Devices, sorted.

    Args:
        entries: to begin with, in any order; loading them at once is several times as
            fast as adding one after the other.
    """

    __slots__ = ("_root",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        level = [_leaf(cut) for cut in _cuts(sorted(entries, key=_place))]
        while len(level) > 1:
            level = [_branch(cut) for cut in _cuts(level)]
        self._root = level[0] if level else _TreeNode(leaf=True)

    def __bool__(self) -> bool:
        return bool(self._root.items)

    def add(self, entry: Entry) -> None:
        """Add an entry whose place nobody has."""
        right = self._root.add(entry)
        if right is not None:
            self._root = _branch([self._root, right])

    def remove(self, number: int, order: str) -> None:
        """Remove the entry of that place, which is there."""
        self._root.remove(number, order)
        while not self._root.leaf and len(self._root.items) == 1:
            self._root = self._root.items[0]

    def first(
        self, number: int, memory: int, *, without: str = "", nodes: Container[str] | None = None
    ) -> Device | None:
        """The first device from a number on that has what is asked.

        Args:
            number: where to begin; 0 is at the beginning.
            memory: the bytes that it has at least.
            without: an anti-affinity label that it does not have; "" asks nothing.
            nodes: it is on one of them; None asks nothing.
        """
        return self._root.first(number, memory, without, nodes)


class _TreeNode:
    """A branch, whose items are parts, or a leaf, whose items are devices.

    Attributes:
        numbers: the number of each item; of a part, its last one.
        orders: the order among equal numbers of each item; of a part, its last one.
        memories: the memory of each item; of a part, the most of it.
        most: the most of `memories`, -1 when there are none.
        bounds: label → nothing below that lacks the label has more memory than this.
    """

    __slots__ = ("bounds", "items", "leaf", "memories", "most", "numbers", "orders")

    def __init__(self, *, leaf: bool) -> None:
        self.leaf = leaf
        self.numbers: list[int] = []
        self.orders: list[str] = []
        self.memories: list[int] = []
        self.items: list[Any] = []
        self.most = -1
        self.bounds: dict[str, int] = {}

    # What follows runs some ten times a decision: its steps are written out, not called.

    def add(self, entry: Entry) -> "_TreeNode | None":
        """Add an entry; the right half when this part had to be cut."""
        number, order, memory, device = entry
        numbers = self.numbers
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number and self.orders[at] < order:
            at = bisect_left(self.orders, order, at, bisect_right(numbers, number, at))
        if self.leaf:
            self._insert(at, number, order, memory, device)
        else:
            at_the_end = at == len(numbers)
            if at_the_end:
                at -= 1
            part = self.items[at]
            right = part.add(entry)
            # Looking at what may be far away in memory only where it can have changed.
            if at_the_end or right is not None:
                numbers[at] = part.numbers[-1]
                self.orders[at] = part.orders[-1]
            self.memories[at] = part.most
            if right is not None:
                self._insert(at + 1, right.numbers[-1], right.orders[-1], right.most, right)
        self.most = max(self.most, memory)
        if self.bounds:
            self._raise_bounds(memory, device)
        return self._cut() if len(numbers) > WIDTH else None

    def remove(self, number: int, order: str) -> None:
        """Remove the entry of that place."""
        numbers = self.numbers
        at = bisect_left(numbers, number)
        if numbers[at] == number and self.orders[at] < order:
            at = bisect_left(self.orders, order, at, bisect_right(numbers, number, at))
        had = self.memories[at]
        if not self.leaf:
            part = self.items[at]
            part.remove(number, order)
            if part.items:
                if numbers[at] == number:
                    numbers[at] = part.numbers[-1]
                    self.orders[at] = part.orders[-1]
                self.memories[at] = part.most
                if part.most < had == self.most:
                    self.most = max(self.memories)
                return
        del numbers[at], self.orders[at], self.memories[at], self.items[at]
        if had == self.most:
            self.most = max(self.memories, default=-1)

    def first(
        self, number: int, memory: int, without: str, nodes: Container[str] | None
    ) -> Device | None:
        """As that of the tree."""
        begin = bisect_left(self.numbers, number) if number else 0
        memories, items = self.memories, self.items
        found: Device | None
        for at in range(begin, len(items)):
            if memories[at] < memory:
                continue
            if self.leaf:
                found = items[at]
                if (not without or without not in found.anti_affinities) and (
                    nodes is None or found.node in nodes
                ):
                    return found
            else:
                part = items[at]
                if without and part.bounds.get(without, memory) < memory:
                    continue
                found = part.first(number if at == begin else 0, memory, without, nodes)
                if found is not None:
                    return found
        if without and nodes is None and not number:
            self._learn(without, memory - 1)
        return None

    def _learn(self, label: str, bound: int) -> None:
        if len(self.bounds) >= BOUNDS:
            self.bounds.clear()
        self.bounds[label] = bound

    def _raise_bounds(self, memory: int, device: Device) -> None:
        labels = device.anti_affinities
        for label, bound in self.bounds.items():
            if memory > bound and label not in labels:
                self.bounds[label] = memory

    def _insert(self, at: int, number: int, order: str, memory: int, item: object) -> None:
        self.numbers.insert(at, number)
        self.orders.insert(at, order)
        self.memories.insert(at, memory)
        self.items.insert(at, item)

    def _cut(self) -> "_TreeNode":
        half = len(self.items) // 2
        right = _TreeNode(leaf=self.leaf)
        right.numbers = _split_off(self.numbers, half)
        right.orders = _split_off(self.orders, half)
        right.memories = _split_off(self.memories, half)
        right.items = _split_off(self.items, half)
        self.most, right.most = max(self.memories), max(right.memories)
        # What nobody of the whole has, nobody of a half has.
        right.bounds = dict(self.bounds)
        return right


def _split_off(items: list[Item], at: int) -> list[Item]:
    """Take a list's end off it."""
    end = items[at:]
    del items[at:]
    return end


def _place(entry: Entry) -> tuple[int, str]:
    return entry[0], entry[1]


def _cuts(items: list[Any]) -> list[list[Any]]:
    """Runs of three quarters of a width, so that the first additions cut nothing."""
    size = WIDTH * 3 // 4
    return [items[at : at + size] for at in range(0, len(items), size)]


def _leaf(entries: list[Entry]) -> _TreeNode:
    leaf = _TreeNode(leaf=True)
    for number, order, memory, device in entries:
        leaf.numbers.append(number)
        leaf.orders.append(order)
        leaf.memories.append(memory)
        leaf.items.append(device)
    leaf.most = max(leaf.memories)
    # A label that everybody carries would send the first search through everybody.
    common = frozenset.intersection(*(device.anti_affinities for device in leaf.items))
    leaf.bounds = dict.fromkeys(sorted(common)[:BOUNDS], -1)
    return leaf


def _branch(parts: list[_TreeNode]) -> _TreeNode:
    branch = _TreeNode(leaf=False)
    branch.items = parts
    branch.numbers = [part.numbers[-1] for part in parts]
    branch.orders = [part.orders[-1] for part in parts]
    branch.memories = [part.most for part in parts]
    branch.most = max(branch.memories)
    common = set(parts[0].bounds).intersection(*(part.bounds for part in parts[1:]))
    branch.bounds = {label: max(part.bounds[label] for part in parts) for label in sorted(common)}
    return branch
