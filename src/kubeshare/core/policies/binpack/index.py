"""What the binpack policy knows of a ledger: GPUs of one kind, the fullest first.

The GPUs of a kind are sorted by the memory left, then by node and number; the first
with enough is the one. A GPU has room when its memory is enough and, since compute
follows memory, when the same share of its compute is left too: where others hold more
compute than memory, it is passed over and the next one is looked at.

GPUs that take nobody (failed, fenced, on an unknown node, with as many holders as may
be) are in no list.
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

Place: TypeAlias = tuple[int, str, str]
"""Memory left, a text that sorts by node and number, GPUID."""

_FEW_NODES: Final = 8


class BinpackIndex:
    """Follows a ledger.

    Attributes:
        kinds: every kind of GPU in the cluster → by how many devices and nodes it is known.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self.kinds: Counter[FreeGpu] = Counter()
        self._orders: dict[str, str] = {}  # GPUID -> the text by which it sorts
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._sorted: dict[FreeGpu, SortedBlocks[Place]] = {}
        places: dict[FreeGpu, list[Place]] = defaultdict(list)
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        for device in ledger.devices.values():
            self._register(device)
            if self._takes(device):
                places[_kind(device)].append(self._place(device))
        for kind, of_kind in places.items():
            self._sorted[kind] = SortedBlocks(of_kind)

    def fullest(self, demand: Demand) -> Device | None:
        """The GPU with the least memory left of all that have room, then by node and number.

        Args:
            demand: of one GPU, its compute following its memory.
        """
        nodes = demand.nodes
        if nodes is not None and len(nodes) <= _FEW_NODES:
            return self._fullest_on(nodes, demand)
        best: Place | None = None
        for kind, places in self._sorted.items():
            if demand.model in ("", kind.model):
                found = self._first(places, demand.memory.on(kind.memory_bytes), nodes)
                if found and (best is None or found < best):
                    best = found
        return self._devices[best[2]] if best else None

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""
        if before is not None and self._takes(before):
            self._remove(before)
        if before is None or after is None or _identity(before) != _identity(after):
            if before is not None:
                self._unregister(before)
            if after is not None:
                self._register(after)
        if after is not None and self._takes(after):
            self._add(after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went."""
        was, now = _kinds(before), _kinds(after)
        self.kinds.subtract(was - now)
        self.kinds.update(now - was)
        for kind in was - now:
            if not self.kinds[kind]:
                del self.kinds[kind]
        known = after or before
        if known is None or (before is not None and after is not None):
            return
        for device_id in self._on_node.get(known.name, ()):
            device = self._devices[device_id]
            if takes(device):
                if after:
                    self._add(device)
                else:
                    self._remove(device)

    def _first(
        self, places: SortedBlocks[Place], asked: int, nodes: Container[str] | None
    ) -> Place | None:
        for place in places.since((asked, "")):
            device = self._devices[place[2]]
            if most(device) >= asked and (nodes is None or device.node in nodes):
                return place
        return None

    def _fullest_on(self, nodes: frozenset[str], demand: Demand) -> Device | None:
        """The same, of a few nodes: all their GPUs are looked at."""
        best: Place | None = None
        for node in nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                asked, left = demand.memory.on(device.memory_bytes), device.memory_left
                # Most GPUs are told from the best one by their memory alone.
                if left < asked or (best is not None and left > best[0]):
                    continue
                if demand.model not in ("", device.model) or not self._takes(device):
                    continue
                if asked <= most(device):
                    place = self._place(device)
                    if best is None or place < best:
                        best = place
        return self._devices[best[2]] if best else None

    def _takes(self, device: Device) -> bool:
        return device.node in self._nodes and takes(device)

    def _add(self, device: Device) -> None:
        kind = _kind(device)
        if kind not in self._sorted:
            self._sorted[kind] = SortedBlocks()
        self._sorted[kind].add(self._place(device))

    def _remove(self, device: Device) -> None:
        kind = _kind(device)
        places = self._sorted[kind]
        places.remove(self._place(device))
        if not places:
            del self._sorted[kind]

    def _place(self, device: Device) -> Place:
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
    """A text that sorts by node, then by the GPU's number or id."""
    # What stands between comes before whatever may follow in a longer name of a node.
    return f"{natural(device.node)}\0\0{natural(device.name)}"


def takes(device: Device) -> bool:
    """The device takes new holders at all."""
    return device.healthy and not device.fenced and len(device.holders) < MAX_HOLDERS


def most(device: Device) -> int:
    """The most memory that it can give, if the same share of compute goes with it."""
    by_compute = ((device.compute_left + 1) * device.memory_bytes - 1) // MICROS
    return min(device.memory_left, by_compute)


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    return node.kinds.union(node.free) if node else frozenset()


def _identity(device: Device) -> tuple[object, ...]:
    """What seldom changes of a device."""
    return device.node, device.model, device.memory_bytes, device.index
