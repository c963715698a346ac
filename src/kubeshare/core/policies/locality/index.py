"""The index of the locality policy: devices sorted by room.

Devices of one kind and label group are in one tree, which finds the best of them for a demand
(:mod:`kubeshare.core.ledger.index.group_trees`). Best fit finds the first of an ascending tree;
the trees of groups with an affinity label are inverted, since Algorithm 1 uses worst fit there.

Devices on an unknown node are in no tree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, TypeGuard, TypeVar

from kubeshare.core.constraints.checks import Group, groups, has_room
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index.device_tree import DeviceTree, Entry
from kubeshare.core.ledger.index.free_gpu_nodes import ByCount, FreeGpuNodes, by_count
from kubeshare.core.ledger.index.group_trees import GroupTrees
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS

Key = TypeVar("Key")

_FEW_NODES: Final = 8
_BITS: Final = 64
_MOST: Final = (1 << _BITS) - 1


class LocalityIndex:
    """An index of a ledger.

    Attributes:
        kinds: every kind of GPU in the cluster → how many devices and nodes have it.
        free_gpu_nodes: where a new vGPU can be opened.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self.kinds: Counter[FreeGpu] = Counter()
        self.free_gpu_nodes = FreeGpuNodes(ledger.nodes.values(), by_count)
        self._on_node: dict[str, set[str]] = defaultdict(set)
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        for device in ledger.devices.values():
            self._register(device)
        placed = [device for device in ledger.devices.values() if device.node in self._nodes]
        self._trees = GroupTrees(_entry, placed)

    def best_fit(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The device that fits with the least compute, then memory left, then by id."""
        return self._closest(demand, among, worst=False)

    def worst_fit(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The device that fits with the most compute, then memory left, then by id."""
        return self._closest(demand, among, worst=True)

    def node_for_new(self, demand: Demand) -> str | None:
        """The node with a suitable free GPU and the fewest free GPUs, then by name."""
        kinds = [kind for kind in self.kinds if _is_suitable(kind, demand)]
        candidates: list[ByCount | None]
        if _are_few(demand.nodes):
            known = (self._nodes[name] for name in self._nodes.keys() & demand.nodes)
            candidates = [by_count(node) for node in known if not set(node.free).isdisjoint(kinds)]
        else:
            candidates = [self.free_gpu_nodes.first(kind, demand.nodes) for kind in kinds]
        best = min(filter(None, candidates), default=None)
        return best[2] if best else None

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Move a device to its present groups."""
        if before is not None and before.node in self._nodes:
            self._trees.remove(before)
        if before is None or after is None or not _is_same_gpu(before, after):
            if before is not None:
                self._unregister(before)
            if after is not None:
                self._register(after)
        if after is not None and after.node in self._nodes:
            self._trees.add(after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Update the free GPUs, and the devices of a node that was added or removed."""
        self.free_gpu_nodes.changed(before, after)
        old, new = _kinds(before), _kinds(after)
        for kind in old - new:
            _decrement(self.kinds, kind)
        self.kinds.update(new - old)
        known = after or before
        if known and (before is None or after is None):
            for device_id in self._on_node.get(known.name, ()):
                if after:
                    self._trees.add(self._devices[device_id])
                else:
                    self._trees.remove(self._devices[device_id])

    def _closest(self, demand: Demand, among: tuple[Group, ...], *, worst: bool) -> Device | None:
        best: Device | None = None
        least: tuple[int, str] | None = None
        if _are_few(demand.nodes):
            fitting = self._on_few_nodes(demand, demand.nodes, among)
        else:
            fitting = self._in_trees(demand, among, worst=worst)
        for group, device in fitting:
            position = _number(group, device), device.order
            if least is None or position < least:
                best, least = device, position
        return best

    def _in_trees(
        self, demand: Demand, among: tuple[Group, ...], *, worst: bool
    ) -> Iterator[tuple[Group, Device]]:
        """The best of each group and kind of GPU."""
        for group, total, tree in self._trees.of(demand.model, among):
            found = _first(tree, group, demand, total, worst=worst)
            if found is not None:
                yield group, found

    def _on_few_nodes(
        self, demand: Demand, nodes: frozenset[str], among: tuple[Group, ...]
    ) -> Iterator[tuple[Group, Device]]:
        """All devices that fit on the few nodes that may be used."""
        for node in self._nodes.keys() & nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                group = next((group for group in groups(device) if group in among), None)
                if group is not None and _fits(device, demand):
                    yield group, device

    def _register(self, device: Device) -> None:
        self.kinds[_kind(device)] += 1
        self._on_node[device.node].add(device.id)

    def _unregister(self, device: Device) -> None:
        _decrement(self.kinds, _kind(device))
        on_node = self._on_node[device.node]
        on_node.discard(device.id)
        if not on_node:
            del self._on_node[device.node]


def _first(
    tree: DeviceTree, group: Group, demand: Demand, total: int, *, worst: bool
) -> Device | None:
    """The first device of a group that fits; all are GPUs of `total` bytes."""
    memory, compute = demand.memory.on(total), demand.compute_on(total)
    # Lines 5 and 19; a group without anti-affinity labels needs no check.
    without = demand.anti_affinity if group[2] else ""
    nodes = demand.nodes
    # Lines 6 and 20.
    if not worst:
        return tree.first(compute << _BITS | memory, memory, without=without, nodes=nodes)
    found = tree.first(0, memory, without=without, nodes=nodes)
    # It has the most compute of all that pass the filters, so no other has enough either.
    return found if found is not None and found.compute_left >= compute else None


def _are_few(nodes: frozenset[str] | None) -> TypeGuard[frozenset[str]]:
    """Whether checking all devices of these nodes is faster than a search of the trees."""
    return nodes is not None and len(nodes) <= _FEW_NODES


def _is_suitable(kind: FreeGpu, demand: Demand) -> bool:
    return (
        demand.model in ("", kind.model)
        and demand.memory.on(kind.memory_bytes) <= kind.memory_bytes
    )


def _fits(device: Device, demand: Demand) -> bool:
    """Lines 5-6 and 19-20, and the model, for a device in one of the right groups."""
    return (
        demand.model in ("", device.model)
        and demand.anti_affinity not in device.anti_affinities
        and has_room(device, demand)
    )


def _entry(group: Group, device: Device) -> Entry:
    left = device.memory_bytes - device.totals.memory_bytes
    return _number(group, device), device.order, left, device


def _number(group: Group, device: Device) -> int:
    """Compute left, then memory left; inverted for groups that are searched by worst fit."""
    totals = device.totals
    if group[0] == "":
        return (MICROS - totals.request_micros) << _BITS | (
            device.memory_bytes - totals.memory_bytes
        )
    return totals.request_micros << _BITS | (_MOST - device.memory_bytes + totals.memory_bytes)


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    """The known kinds of a node's GPUs, in use or not."""
    return node.kinds.union(node.free) if node else frozenset()


def _is_same_gpu(before: Device, after: Device) -> bool:
    """Whether only the holders and the state have changed."""
    return (
        before.node == after.node
        and before.model == after.model
        and before.memory_bytes == after.memory_bytes
    )


def _decrement(counter: Counter[Key], key: Key) -> None:
    """Subtract one; a key with a count of zero is removed."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
