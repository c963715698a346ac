"""A node's state for the topology policy, as bit sets and sums.

A node without a link matrix, or whose GPUs are not all numbered as the rows of its matrix, is
treated as flat: each GPU is as far as possible from each other one.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.natural_sort import natural
from kubeshare.core.topology.links import flat
from kubeshare.core.topology.selection import Best, Closest, closest
from kubeshare.core.topology.tree import bits
from kubeshare.core.units import MICROS

_MAX_KINDS: Final = 64


class DemandKind(NamedTuple):
    """What determines the candidates for a demand.

    Attributes:
        whole: how many whole GPUs; 0 for a fraction of one.
        model: the required model, "" for any.
        memory: the least size of a GPU's memory, in bytes.
    """

    whole: int
    model: str
    memory: int


def whole_gpus(demand: Demand) -> int:
    """How many whole GPUs the demand is for; 0 for a fraction of one."""
    return demand.count if demand.request_micros >= MICROS else 0


class NodeState:
    """One node at one moment.

    Args:
        node: the node.
        devices: all its devices.

    Attributes:
        name: the name of the node.
        key: the sort key of the node.
        devices: number, which is the row of the matrix, → device.
        free: micros left on its devices in service.
        idle: the devices in service without holders, as bits.
        in_use: the devices in service with holders and room for more, as bits.
    """

    __slots__ = (
        "_masks",
        "_numbers",
        "closest",
        "devices",
        "free",
        "idle",
        "in_use",
        "key",
        "name",
    )

    def __init__(self, node: Node, devices: Iterable[Device]) -> None:
        self.name = node.name
        self.key = natural(node.name)
        self.devices, self.closest = _arranged(node, list(devices))
        self.free = self.idle = self.in_use = 0
        self._numbers = {device.id: number for number, device in self.devices.items()}
        self._masks: dict[tuple[str, int], tuple[int, ...]] = {}
        self._count()

    def update(self, device: Device) -> None:
        """Replace one of its devices, whose holders or health changed."""
        number = self._numbers[device.id]
        before = self.devices[number]
        self.devices[number] = device
        if (before.healthy, before.fenced) != (device.healthy, device.fenced):
            self._count()
        elif device.healthy and not device.fenced:
            self.free += device.compute_left - before.compute_left
            bit, holders = 1 << number, len(device.holders)
            self.idle = self.idle & ~bit if holders else self.idle | bit
            self.in_use = self.in_use | bit if 0 < holders < MAX_HOLDERS else self.in_use & ~bit

    def best(self, kind: DemandKind) -> Best | None:
        """The best idle GPUs for a demand, all of one model."""
        key = (kind.model, kind.memory)
        masks = self._masks.get(key)
        if masks is None:
            masks = self._cache_masks(key)
        if len(masks) == 1:
            return self.closest.best(self.idle, masks[0] & self.idle, kind.whole)
        found = (self.closest.best(self.idle, mask & self.idle, kind.whole) for mask in masks)
        return min((best for best in found if best), default=None, key=_score_then_index)

    def chosen(self, gpus: int) -> tuple[Device, ...]:
        """The devices of a set."""
        return tuple([self.devices[number] for number in bits(gpus)])

    def _count(self) -> None:
        free = idle = in_use = 0
        for number, device in self.devices.items():
            if device.healthy and not device.fenced:
                free += device.compute_left
                if not device.holders:
                    idle |= 1 << number
                elif len(device.holders) < MAX_HOLDERS:
                    in_use |= 1 << number
        self.free, self.idle, self.in_use = free, idle, in_use

    def _cache_masks(self, key: tuple[str, int]) -> tuple[int, ...]:
        """For each suitable model, its GPUs that are large enough, idle or not, as bits."""
        model, memory = key
        masks: dict[str, int] = {}
        for number, device in self.devices.items():
            if model in ("", device.model) and device.memory_bytes >= memory:
                masks[device.model] = masks.get(device.model, 0) | 1 << number
        if len(self._masks) >= _MAX_KINDS:
            self._masks.clear()
        self._masks[key] = tuple(masks.values())
        return self._masks[key]


def _arranged(node: Node, devices: list[Device]) -> tuple[dict[int, Device], Closest]:
    numbered = {device.number: device for device in devices if device.number is not None}
    rows = len(node.links)
    if rows and len(numbered) == len(devices) and all(0 <= index < rows for index in numbered):
        return numbered, closest(node.links)
    devices.sort(key=lambda device: (natural(device.name), natural(device.id)))
    return dict(enumerate(devices)), closest(flat(len(devices)))


def _score_then_index(best: Best) -> tuple[object, int]:
    """Sets of different models have no GPU in common: the smallest index decides."""
    score, gpus = best
    return score, gpus & -gpus
