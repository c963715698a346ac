"""Sorted trees of devices, by kind of GPU and labels.

Devices of one model and size in one group (:mod:`kubeshare.core.constraints.checks`) pass the
exclusion and affinity rules alike, so only the anti-affinity rule and the room remain to be
checked, and a search of the tree checks both.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from kubeshare.core.constraints.checks import Group, groups
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.device_tree import DeviceTree, Entry

Kind: TypeAlias = tuple[str, int]
"""Model and bytes of a GPU; a plain tuple is a faster key than a FreeGpu."""


class GroupTrees:
    """Trees of devices.

    Args:
        entry: the entry of a device in the tree of one of its groups, by which a policy sorts.
        least: the least number and amount of the entries of a group with so much compute and
            memory left.
        devices: the initial devices.
    """

    __slots__ = ("_entry", "_least", "_trees")

    def __init__(
        self,
        entry: Callable[[Group, Device], Entry],
        least: Callable[[Group, int, int], tuple[int, int]],
        devices: Iterable[Device] = (),
    ) -> None:
        self._entry = entry
        self._least = least
        self._trees: dict[Kind, dict[Group, DeviceTree]] = {}
        entries: dict[Kind, dict[Group, list[Entry]]] = {}
        for device in devices:
            for group in groups(device):
                of_kind = entries.setdefault((device.model, device.memory_bytes), {})
                of_kind.setdefault(group, []).append(entry(group, device))
        for kind, by_group in entries.items():
            self._trees[kind] = {group: DeviceTree(found) for group, found in by_group.items()}

    def __bool__(self) -> bool:
        return bool(self._trees)

    def add(self, device: Device) -> None:
        """Add a device to the trees of its groups."""
        for group in groups(device):
            trees = self._trees.setdefault((device.model, device.memory_bytes), {})
            tree = trees.get(group)
            if tree is None:
                tree = trees[group] = DeviceTree()
            tree.add(self._entry(group, device))

    def remove(self, device: Device) -> None:
        """Remove a device that was added in this state."""
        kind = device.model, device.memory_bytes
        for group in groups(device):
            trees = self._trees[kind]
            tree = trees[group]
            number, order, _, _ = self._entry(group, device)
            tree.remove(number, order)
            if not tree:
                del trees[group]
                if not trees:
                    del self._trees[kind]

    def first(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The first device, by its entry, in one of these groups that fits a demand for one GPU."""
        best: tuple[int, str] | None = None
        found: Device | None = None
        for (model, total), trees in self._trees.items():
            if demand.model not in ("", model):
                continue
            compute, memory = demand.compute_on(total), demand.memory.on(total)
            for group in among:
                tree = trees.get(group)
                if tree is None:
                    continue
                number, amount = self._least(group, compute, memory)
                # A group without anti-affinity labels needs no check.
                without = demand.anti_affinity if group[2] else ""
                first = tree.first(number, amount, without=without, nodes=demand.nodes)
                # In a tree with the most compute first, no other has enough either.
                if first is not None and first.compute_left >= compute:
                    position = self._entry(group, first)[:2]
                    if best is None or position < best:
                        best, found = position, first
        return found
