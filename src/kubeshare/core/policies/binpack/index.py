"""The index of the binpack policy: the fullest devices first.

Devices of one kind and label group are in one tree, by the memory left, then by node and number;
each branch also stores the most compute left below it
(:mod:`kubeshare.core.ledger.index.group_trees`). So a search finds the fullest device with enough
of both.

Devices on an unknown node are in no tree. Nodes with free GPUs of a kind are sorted by name.
"""

from collections import Counter, defaultdict
from typing import Final, TypeAlias

from kubeshare.core.constraints.checks import Group, has_room, labels_admit, takes_holders
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.free_gpu_nodes import ByName, FreeGpuNodes, by_name
from kubeshare.core.ledger.index.group_trees import GroupTrees
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening

Position: TypeAlias = tuple[int, str]
"""Memory left, the sort key by node and number."""

_FEW_NODES: Final = 8


class BinpackIndex:
    """An index of a ledger.

    Attributes:
        kinds: every kind of GPU in the cluster → how many devices and nodes have it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self.kinds: Counter[FreeGpu] = Counter()
        self._free_gpu_nodes = FreeGpuNodes(ledger.nodes.values(), by_name)
        self._orders: dict[str, str] = {}  # id -> its sort key
        self._on_node: dict[str, set[str]] = defaultdict(set)
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        for device in ledger.devices.values():
            self._register(device)
        placed = [device for device in ledger.devices.values() if device.node in self._nodes]
        self._trees = GroupTrees(self._entry, placed)

    def fullest(
        self, demand: Demand, among: tuple[Group, ...], *, label_in_use: bool
    ) -> Device | None:
        """The device with the least memory left of all that fit, then by node and number.

        Args:
            demand: the demand, for one GPU.
            among: the groups that it may use.
            label_in_use: whether a device has its affinity label.
        """
        nodes = demand.nodes
        if nodes is not None and len(nodes) <= _FEW_NODES:
            return self._fullest_on(nodes, demand, label_in_use=label_in_use)
        best: Position | None = None
        found: Device | None = None
        for group, total, tree in self._trees.of(demand.model, among):
            first = tree.first(
                demand.memory.on(total),
                demand.compute_on(total),
                # A group without anti-affinity labels needs no check.
                without=demand.anti_affinity if group[2] else "",
                nodes=nodes,
            )
            if first is not None:
                position = self._position(first)
                if best is None or position < best:
                    best, found = position, first
        return found

    def free_gpu(self, demand: Demand) -> tuple[str, FreeGpu] | None:
        """The node and kind of the smallest free GPU that fits the demand.

        Of several nodes with such a GPU it is the first by name, then the first model.
        """
        nodes = demand.nodes
        found: list[tuple[ByName | None, FreeGpu]]
        if nodes is not None and len(nodes) <= _FEW_NODES:
            known = [self._nodes[name] for name in nodes if name in self._nodes]
            found = [
                (by_name(node), kind)
                for node in known
                for kind in opening.suitable(node.free, demand)
            ]
        else:
            suitable = opening.suitable(self.kinds, demand)
            found = [(self._free_gpu_nodes.first(kind, nodes), kind) for kind in suitable]
        fitting = [
            (kind.memory_bytes, position, kind.model) for position, kind in found if position
        ]
        if not fitting:
            return None
        memory, position, model = min(fitting)
        return position[-1], FreeGpu(model, memory)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Move a device to its present position."""
        if before is not None and before.node in self._nodes:
            self._trees.remove(before)
        if before is None or after is None or _identity(before) != _identity(after):
            if before is not None:
                self._unregister(before)
            if after is not None:
                self._register(after)
        if after is not None and after.node in self._nodes:
            self._trees.add(after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Update the free GPUs, and the devices of a node that was added or removed."""
        self._free_gpu_nodes.changed(before, after)
        old, new = _kinds(before), _kinds(after)
        self.kinds.subtract(old - new)
        self.kinds.update(new - old)
        for kind in old - new:
            if not self.kinds[kind]:
                del self.kinds[kind]
        known = after or before
        if known is None or (before is not None and after is not None):
            return
        for device_id in self._on_node.get(known.name, ()):
            if after:
                self._trees.add(self._devices[device_id])
            else:
                self._trees.remove(self._devices[device_id])

    def _fullest_on(
        self, nodes: frozenset[str], demand: Demand, *, label_in_use: bool
    ) -> Device | None:
        """The same for a few nodes, by a search of all their devices."""
        best: Position | None = None
        found: Device | None = None
        for node in self._nodes.keys() & nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                # The room alone rules out most devices.
                if best is not None and device.memory_left > best[0]:
                    continue
                if demand.model not in ("", device.model) or not has_room(device, demand):
                    continue
                if takes_holders(device) and labels_admit(
                    device, demand, label_in_use=label_in_use
                ):
                    position = self._position(device)
                    if best is None or position < best:
                        best, found = position, device
        return found

    def _entry(self, _: Group, device: Device) -> Entry:
        return device.memory_left, self._orders[device.id], device.compute_left, device

    def _position(self, device: Device) -> Position:
        return device.memory_left, self._orders[device.id]

    def _register(self, device: Device) -> None:
        self.kinds[_kind(device)] += 1
        self._orders[device.id] = order(device)
        self._on_node[device.node].add(device.id)

    def _unregister(self, device: Device) -> None:
        kind = _kind(device)
        self.kinds[kind] -= 1
        if not self.kinds[kind]:
            del self.kinds[kind]
        del self._orders[device.id]
        self._on_node[device.node].discard(device.id)


def order(device: Device) -> str:
    """The sort key by node, then by the GPU's number or id; no two devices have the same."""
    # The separator sorts before anything that may follow in a longer name of a node.
    return f"{natural(device.node)}\0\0{natural(device.name)}\0\0{device.id}"


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    return node.kinds.union(node.free) if node else frozenset()


def _identity(device: Device) -> tuple[object, ...]:
    """What rarely changes about a device."""
    return device.node, device.model, device.memory_bytes, device.index
