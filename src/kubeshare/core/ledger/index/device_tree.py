"""A sorted tree of devices, searched by two amounts.

Best fit asks which device has the least compute and amount left of those with enough of both. A
sorted list finds one of them by bisection, but may then walk past thousands of devices that lack
the other. In this tree the first amount is (part of) the *number* by which the devices are
sorted, and each branch also stores the most of the second *amount* below it, so a search enters
only branches that can hold the answer. It is a B+ tree whose branches and leaves are both
parallel lists with one position an entry.

The position of an entry is given by its number and, among equal numbers, by the sort key of its
id. They are two lists because integers compare several times as fast as tuples, and numbers are
rarely equal.

Anti-affinity requires that the device lacks a label. A branch that was searched completely
without success for a label stores a bound: no device below it that lacks the label has a greater
amount. A bound stays valid when entries are removed, is raised when one is added, and is learned
again by the next search that it did not stop.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from kubeshare.core.ledger.device import Device

WIDTH: Final = 64
"""The most items of a branch or leaf; beyond that it is split into halves."""

BOUNDS: Final = 64
"""The most labels for which a branch stores a bound."""

Entry: TypeAlias = tuple[int, str, int, Device]
"""Number, sort key among equal numbers, amount, device."""

Item = TypeVar("Item")


class DeviceTree:
    """Devices, sorted.

    Args:
        entries: the initial entries, in any order; loading them at once is several times as
            fast as adding one after another.
    """

    __slots__ = ("_root",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        level = [_leaf(chunk) for chunk in _chunks(sorted(entries, key=_position))]
        while len(level) > 1:
            level = [_branch(chunk) for chunk in _chunks(level)]
        self._root = level[0] if level else _TreeNode(leaf=True)

    def __bool__(self) -> bool:
        return bool(self._root.items)

    def add(self, entry: Entry) -> None:
        """Add an entry whose position is free."""
        right = self._root.add(entry)
        if right is not None:
            self._root = _branch([self._root, right])

    def remove(self, number: int, order: str) -> None:
        """Remove the entry at a position, which must exist."""
        self._root.remove(number, order)
        while not self._root.leaf and len(self._root.items) == 1:
            self._root = self._root.items[0]

    def first(
        self, number: int, amount: int, *, without: str = "", nodes: Container[str] | None = None
    ) -> Device | None:
        """The first device from a number on that meets all conditions.

        Args:
            number: where to start; 0 is the beginning.
            amount: the least amount that the device has.
            without: an anti-affinity label that it must not have; "" for any.
            nodes: the nodes that it may be on; None for all.
        """
        return self._root.first(number, amount, without, nodes)


class _TreeNode:
    """A branch, whose items are tree nodes, or a leaf, whose items are devices.

    Attributes:
        numbers: the number of each item; of a tree node, its last one.
        orders: the sort key of each item; of a tree node, its last one.
        amounts: the amount of each item; of a tree node, the greatest.
        most: the maximum of `amounts`, -1 without items.
        bounds: label → no device below that lacks the label has a greater amount.
    """

    __slots__ = ("amounts", "bounds", "items", "leaf", "most", "numbers", "orders")

    def __init__(self, *, leaf: bool) -> None:
        self.leaf = leaf
        self.numbers: list[int] = []
        self.orders: list[str] = []
        self.amounts: list[int] = []
        self.items: list[Any] = []
        self.most = -1
        self.bounds: dict[str, int] = {}

    # The following methods run about ten times a decision, so their steps are inlined.

    def add(self, entry: Entry) -> "_TreeNode | None":
        """Add an entry; returns the right half if the node was split."""
        number, order, amount, device = entry
        numbers = self.numbers
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number and self.orders[at] < order:
            at = bisect_left(self.orders, order, at, bisect_right(numbers, number, at))
        if self.leaf:
            self._insert(at, number, order, amount, device)
        else:
            is_last = at == len(numbers)
            if is_last:
                at -= 1
            child = self.items[at]
            right = child.add(entry)
            # Read memory that may be far away only where it can have changed.
            if is_last or right is not None:
                numbers[at] = child.numbers[-1]
                self.orders[at] = child.orders[-1]
            self.amounts[at] = child.most
            if right is not None:
                self._insert(at + 1, right.numbers[-1], right.orders[-1], right.most, right)
        self.most = max(self.most, amount)
        if self.bounds:
            self._raise_bounds(amount, device)
        return self._split() if len(numbers) > WIDTH else None

    def remove(self, number: int, order: str) -> None:
        """Remove the entry at a position."""
        numbers = self.numbers
        at = bisect_left(numbers, number)
        if numbers[at] == number and self.orders[at] < order:
            at = bisect_left(self.orders, order, at, bisect_right(numbers, number, at))
        had = self.amounts[at]
        if not self.leaf:
            child = self.items[at]
            child.remove(number, order)
            if child.items:
                if numbers[at] == number:
                    numbers[at] = child.numbers[-1]
                    self.orders[at] = child.orders[-1]
                self.amounts[at] = child.most
                if child.most < had == self.most:
                    self.most = max(self.amounts)
                return
        del numbers[at], self.orders[at], self.amounts[at], self.items[at]
        if had == self.most:
            self.most = max(self.amounts, default=-1)

    def first(
        self, number: int, amount: int, without: str, nodes: Container[str] | None
    ) -> Device | None:
        """See :meth:`DeviceTree.first`."""
        begin = bisect_left(self.numbers, number) if number else 0
        amounts, items = self.amounts, self.items
        found: Device | None
        for at in range(begin, len(items)):
            if amounts[at] < amount:
                continue
            if self.leaf:
                found = items[at]
                if (not without or without not in found.anti_affinities) and (
                    nodes is None or found.node in nodes
                ):
                    return found
            else:
                child = items[at]
                if without and child.bounds.get(without, amount) < amount:
                    continue
                found = child.first(number if at == begin else 0, amount, without, nodes)
                if found is not None:
                    return found
        if without and nodes is None and not number:
            self._set_bound(without, amount - 1)
        return None

    def _set_bound(self, label: str, bound: int) -> None:
        if len(self.bounds) >= BOUNDS:
            self.bounds.clear()
        self.bounds[label] = bound

    def _raise_bounds(self, amount: int, device: Device) -> None:
        labels = device.anti_affinities
        for label, bound in self.bounds.items():
            if amount > bound and label not in labels:
                self.bounds[label] = amount

    def _insert(self, at: int, number: int, order: str, amount: int, item: object) -> None:
        self.numbers.insert(at, number)
        self.orders.insert(at, order)
        self.amounts.insert(at, amount)
        self.items.insert(at, item)

    def _split(self) -> "_TreeNode":
        half = len(self.items) // 2
        right = _TreeNode(leaf=self.leaf)
        right.numbers = _take_end(self.numbers, half)
        right.orders = _take_end(self.orders, half)
        right.amounts = _take_end(self.amounts, half)
        right.items = _take_end(self.items, half)
        self.most, right.most = max(self.amounts), max(right.amounts)
        # A bound of the whole holds for either half.
        right.bounds = dict(self.bounds)
        return right


def _take_end(items: list[Item], at: int) -> list[Item]:
    """Remove the end of a list and return it."""
    end = items[at:]
    del items[at:]
    return end


def _position(entry: Entry) -> tuple[int, str]:
    return entry[0], entry[1]


def _chunks(items: list[Any]) -> list[list[Any]]:
    """Chunks of three quarters of the width, so that the first additions split nothing."""
    size = WIDTH * 3 // 4
    return [items[at : at + size] for at in range(0, len(items), size)]


def _leaf(entries: list[Entry]) -> _TreeNode:
    leaf = _TreeNode(leaf=True)
    leaf.numbers, leaf.orders, leaf.amounts, leaf.items = map(list, zip(*entries, strict=True))
    leaf.most = max(leaf.amounts)
    # Without these bounds, the first search for a label that all devices carry visits them all.
    common = leaf.items[0].anti_affinities
    if common:
        common = common.intersection(*(device.anti_affinities for device in leaf.items))
    leaf.bounds = dict.fromkeys(sorted(common)[:BOUNDS], -1)
    return leaf


def _branch(children: list[_TreeNode]) -> _TreeNode:
    branch = _TreeNode(leaf=False)
    branch.items = children
    branch.numbers = [child.numbers[-1] for child in children]
    branch.orders = [child.orders[-1] for child in children]
    branch.amounts = [child.most for child in children]
    branch.most = max(branch.amounts)
    common = set(children[0].bounds).intersection(*(child.bounds for child in children[1:]))
    branch.bounds = {
        label: max(child.bounds[label] for child in children) for label in sorted(common)
    }
    return branch
