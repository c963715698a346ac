"""Sorted devices and free GPUs, for policies with a fixed order.

Devices of one kind and label group are in one tree, which finds the first of them for a demand
(:mod:`kubeshare.core.ledger.index.group_trees`). Devices on an unknown node are in no tree.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeGuard

from kubeshare.core.constraints.checks import Group, groups
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index import node_ranking
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.free_gpu_nodes import FreeGpuNodes, Position
from kubeshare.core.ledger.index.group_trees import GroupTrees
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.opening import suitable
from kubeshare.core.units import MICROS


class OneByOneIndex(ABC, Generic[Position]):
    """An index of a ledger.

    Args:
        ledger: the ledger.
        position: the sort key of nodes with a free GPU, which ends with the name.
        entry: returns the entry of a device in the tree of one of its groups.
        least: returns the least number and amount of the entries of a group with so much left.
    """

    # The functions are no methods: an index that refers to itself is freed only by a collection.
    def __init__(
        self,
        ledger: Ledger,
        position: Callable[[Node], Position],
        entry: Callable[[Group, Device], Entry],
        least: Callable[[Group, int, int], tuple[int, int]],
    ) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self._position: Callable[[Node], Position] = position
        self._free_gpu_nodes: FreeGpuNodes[Position] = FreeGpuNodes(ledger.nodes.values(), position)
        self._on_node: dict[str, set[str]] = defaultdict(set)
        for device in ledger.devices.values():
            self._register(device)
        placed = (device for device in ledger.devices.values() if device.node in self._nodes)
        self._entry = entry
        self._trees = GroupTrees(entry, least, placed)

    @abstractmethod
    def _free_order(self, position: Position, kind: FreeGpu) -> tuple[Any, ...]:
        """The sort key of a free GPU of a kind on a node at a position."""

    def first(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The first device in one of these groups that fits a demand for one GPU."""
        if not _are_few(demand.nodes):
            return self._trees.first(demand, among)
        return self._first_on_few(demand, demand.nodes, among)

    def free_gpu(self, demand: Demand) -> tuple[str, FreeGpu] | None:
        """The node and kind of the first free GPU that fits a demand."""
        found: Iterator[tuple[Position | None, FreeGpu]]
        if _are_few(demand.nodes):
            known = (self._nodes[name] for name in self._nodes.keys() & demand.nodes)
            found = (
                (self._position(node), kind)
                for node in known
                for kind in suitable(node.free, demand)
            )
        else:
            first, nodes = self._free_gpu_nodes.first, demand.nodes
            kinds = suitable(self._free_gpu_nodes.kinds, demand)
            found = ((first(kind, nodes), kind) for kind in kinds)
        best: tuple[Any, ...] | None = None
        chosen: tuple[str, FreeGpu] | None = None
        for position, kind in found:
            if position is not None:
                order = self._free_order(position, kind)
                if best is None or order < best:
                    best, chosen = order, (position[-1], kind)
        return chosen

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Move a device to its present groups."""
        if before is not None and before.node in self._nodes:
            self._trees.remove(before)
        if before is None or after is None or not before.is_same_gpu(after):
            if before is not None:
                self._unregister(before)
            if after is not None:
                self._register(after)
        if after is not None and after.node in self._nodes:
            self._trees.add(after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Update the free GPUs, and the devices of a node that was added or removed."""
        self._free_gpu_nodes.changed(before, after)
        known = after or before
        if known is None or (before is not None and after is not None):
            return
        for device_id in self._on_node.get(known.name, ()):
            if after:
                self._trees.add(self._devices[device_id])
            else:
                self._trees.remove(self._devices[device_id])

    def _first_on_few(
        self, demand: Demand, nodes: frozenset[str], among: tuple[Group, ...]
    ) -> Device | None:
        """The same by a search of all devices of the few nodes that may be used."""
        best: Entry | None = None
        known = compute = memory = -1
        for node in self._nodes.keys() & nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                totals, total = device.totals, device.memory_bytes
                if total != known:
                    known, compute, memory = (
                        total,
                        demand.compute_on(total),
                        demand.memory.on(total),
                    )
                # The room alone rules out most devices.
                if (
                    total - totals.memory_bytes < memory
                    or MICROS - totals.request_micros < compute
                    or demand.model not in ("", device.model)
                    or demand.anti_affinity in totals.anti_affinities
                ):
                    continue
                for group in groups(device):
                    if group in among:
                        entry = self._entry(group, device)
                        if best is None or entry < best:
                            best = entry
                        break
        return None if best is None else best[-1]

    def _register(self, device: Device) -> None:
        self._on_node[device.node].add(device.id)

    def _unregister(self, device: Device) -> None:
        on_node = self._on_node[device.node]
        on_node.discard(device.id)
        if not on_node:
            del self._on_node[device.node]


def _are_few(nodes: frozenset[str] | None) -> TypeGuard[frozenset[str]]:
    """Whether checking all devices of these nodes is faster than a search of the trees."""
    return nodes is not None and len(nodes) <= node_ranking.FEW_NODES
