"""A node as the topology policy sees it: bits and sums instead of devices.

Nodes whose GPUs are not all numbered as the rows of the link matrix, or that have no
matrix, are treated as flat: nothing is known, so each GPU is as far as can be from each
other one.
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

_MOST_KINDS: Final = 64


class Asked(NamedTuple):
    """What of a demand decides which GPUs are looked at.

    Attributes:
        whole: how many whole GPUs; 0 for a fraction of one.
        model: that must be, "" for any.
        memory: bytes of memory that a GPU must have in all.
    """

    whole: int
    model: str
    memory: int


def whole_gpus(demand: Demand) -> int:
    """How many whole GPUs are asked; 0 when it is a fraction of one."""
    return demand.count if demand.request_micros >= MICROS else 0


def has_room(device: Device, demand: Demand) -> bool:
    """Compute and memory that are left suffice."""
    compute, memory = demand.compute_on(device.memory_bytes), demand.memory.on(device.memory_bytes)
    return compute <= device.compute_left and memory <= device.memory_left


class NodeState:
    """One node at one moment.

    Args:
        node: the node.
        devices: all its devices.

    Attributes:
        name: the node's.
        key: by which nodes sort.
        devices: index or place in the matrix → device.
        free: micros that are left on its devices, those out of service left out.
        idle: the devices in service that nobody uses, as bits.
        in_use: those in service that somebody uses and that take more, as bits.
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
        """Take in that the holders or the health of one of its devices changed."""
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

    def best(self, asked: Asked) -> Best | None:
        """The best idle GPUs for a demand, all of one model."""
        kind = (asked.model, asked.memory)
        masks = self._masks.get(kind)
        if masks is None:
            masks = self._remember(kind)
        if len(masks) == 1:
            return self.closest.best(self.idle, masks[0] & self.idle, asked.whole)
        found = (self.closest.best(self.idle, mask & self.idle, asked.whole) for mask in masks)
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

    def _remember(self, kind: tuple[str, int]) -> tuple[int, ...]:
        """For each model that will do, those of its GPUs that are large enough, idle or not."""
        model, memory = kind
        masks: dict[str, int] = {}
        for number, device in self.devices.items():
            if model in ("", device.model) and device.memory_bytes >= memory:
                masks[device.model] = masks.get(device.model, 0) | 1 << number
        if len(self._masks) >= _MOST_KINDS:
            self._masks.clear()
        self._masks[kind] = tuple(masks.values())
        return self._masks[kind]


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
