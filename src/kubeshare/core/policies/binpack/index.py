"""The index of the binpack policy: GPUs by kind, the fullest first.

The GPUs of a kind are sorted by the memory left, then by node and number; the first with enough
is the answer. A GPU has room if its memory suffices and, since compute follows memory, if the
same share of its compute is left: a GPU whose holders have more compute than memory may be
passed over.

GPUs that take no holders (failed, fenced, on an unknown node, or with the most holders) are in
no list.
"""

from collections import Counter, defaultdict
from collections.abc import Container
from typing import Final, TypeAlias

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.index.sorted_blocks import SortedBlocks
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.units import MICROS

Position: TypeAlias = tuple[int, str, str]
"""Memory left, the sort key by node and number, GPUID."""

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
        self._orders: dict[str, str] = {}  # GPUID -> its sort key
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._sorted: dict[FreeGpu, SortedBlocks[Position]] = {}
        positions: dict[FreeGpu, list[Position]] = defaultdict(list)
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        for device in ledger.devices.values():
            self._register(device)
            if self._is_usable(device):
                positions[_kind(device)].append(self._position(device))
        for kind, of_kind in positions.items():
            self._sorted[kind] = SortedBlocks(of_kind)

    def fullest(self, demand: Demand) -> Device | None:
        """The GPU with the least memory left of all that have room, then by node and number.

        The demand is for one GPU, and its compute follows its memory.
        """
        nodes = demand.nodes
        if nodes is not None and len(nodes) <= _FEW_NODES:
            return self._fullest_on(nodes, demand)
        best: Position | None = None
        for kind, positions in self._sorted.items():
            if demand.model in ("", kind.model):
                found = self._first(positions, demand.memory.on(kind.memory_bytes), nodes)
                if found and (best is None or found < best):
                    best = found
        return self._devices[best[2]] if best else None

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the position of a device."""
        if before is not None and self._is_usable(before):
            self._remove(before)
        if before is None or after is None or _identity(before) != _identity(after):
            if before is not None:
                self._unregister(before)
            if after is not None:
                self._register(after)
        if after is not None and self._is_usable(after):
            self._add(after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Update the positions of the devices of a node that was added or removed."""
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
            device = self._devices[device_id]
            if takes_holders(device):
                if after:
                    self._add(device)
                else:
                    self._remove(device)

    def _first(
        self, positions: SortedBlocks[Position], needed: int, nodes: Container[str] | None
    ) -> Position | None:
        for position in positions.since((needed, "")):
            device = self._devices[position[2]]
            if most_available(device) >= needed and (nodes is None or device.node in nodes):
                return position
        return None

    def _fullest_on(self, nodes: frozenset[str], demand: Demand) -> Device | None:
        """The same for a few nodes, by a search of all their GPUs."""
        best: Position | None = None
        for node in nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                needed, left = demand.memory.on(device.memory_bytes), device.memory_left
                # The memory alone rules out most GPUs.
                if left < needed or (best is not None and left > best[0]):
                    continue
                if demand.model not in ("", device.model) or not self._is_usable(device):
                    continue
                if needed <= most_available(device):
                    position = self._position(device)
                    if best is None or position < best:
                        best = position
        return self._devices[best[2]] if best else None

    def _is_usable(self, device: Device) -> bool:
        return device.node in self._nodes and takes_holders(device)

    def _add(self, device: Device) -> None:
        kind = _kind(device)
        if kind not in self._sorted:
            self._sorted[kind] = SortedBlocks()
        self._sorted[kind].add(self._position(device))

    def _remove(self, device: Device) -> None:
        kind = _kind(device)
        positions = self._sorted[kind]
        positions.remove(self._position(device))
        if not positions:
            del self._sorted[kind]

    def _position(self, device: Device) -> Position:
        return device.memory_left, self._orders[device.id], device.id

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
    """The sort key by node, then by the GPU's number or id."""
    # The separator sorts before anything that may follow in a longer name of a node.
    return f"{natural(device.node)}\0\0{natural(device.name)}"


def takes_holders(device: Device) -> bool:
    """Whether the device takes new holders."""
    return device.healthy and not device.fenced and len(device.holders) < MAX_HOLDERS


def most_available(device: Device) -> int:
    """The most memory that it can give together with the same share of compute."""
    by_compute = ((device.compute_left + 1) * device.memory_bytes - 1) // MICROS
    return min(device.memory_left, by_compute)


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    return node.kinds.union(node.free) if node else frozenset()


def _identity(device: Device) -> tuple[object, ...]:
    """What rarely changes about a device."""
    return device.node, device.model, device.memory_bytes, device.index
