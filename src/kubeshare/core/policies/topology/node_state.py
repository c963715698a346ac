"""A node's state for the topology policy, as bit sets and sums.

A node without a link matrix, or whose GPUs are not all numbered as the rows of its matrix, is
treated as flat: each GPU is as far as possible from each other one.

Free GPUs that can be selected are idle GPUs of the tree like vGPUs: a new vGPU is opened on one
that is chosen. Where the node's device plugin chooses, the place of a free GPU is unknown, so it
is in no tree and is used only if there are not enough GPUs with a known place.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.natural_sort import natural
from kubeshare.core.topology.links import flat
from kubeshare.core.topology.selection import Best, Closest, Score, closest
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


class OpeningScore(NamedTuple):
    """How good it is to open new vGPUs on GPUs that the device plugin chooses; less is better.

    Attributes:
        opened: how many new vGPUs.
        memory_bytes: the memory of the new vGPUs in all.
    """

    opened: int
    memory_bytes: int


class Candidate(NamedTuple):
    """GPUs of a node that suffice for a demand.

    Attributes:
        score: how good they are; less is better.
        gpus: those with a number, as bits.
        opened: the kinds of the free GPUs to open, whose place is unknown.
    """

    score: Score | OpeningScore
    gpus: int
    opened: tuple[FreeGpu, ...] = ()


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
        devices: number, which is the row of the matrix, → device. A free GPU that can be
            selected is a device without an id.
        unplaced: the kinds of the other free GPUs, the smallest first.
        free: micros left on its devices in service and its free GPUs.
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
        "unplaced",
    )

    def __init__(self, node: Node, devices: Iterable[Device]) -> None:
        self.name = node.name
        self.key = natural(node.name)
        selectable = [_as_device(node.name, gpu) for gpu in node.selectable]
        self.devices, self.closest = _arranged(node, [*devices, *selectable])
        self.unplaced = _unplaced(node)
        self.free = self.idle = self.in_use = 0
        self._numbers = {device.id: number for number, device in self.devices.items() if device.id}
        self._masks: dict[tuple[str, int], dict[str, int]] = {}
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

    def best(self, kind: DemandKind) -> Candidate | None:
        """The best idle GPUs for a demand, all of one model."""
        masks = tuple(self._large_enough(kind).values())
        if len(masks) == 1:
            only = self.closest.best(self.idle, masks[0] & self.idle, kind.whole)
            return Candidate(*only) if only else None
        found = (self.closest.best(self.idle, mask & self.idle, kind.whole) for mask in masks)
        best = min((best for best in found if best), default=None, key=_score_then_index)
        return Candidate(*best) if best else None

    def opening(self, kind: DemandKind) -> Candidate | None:
        """All idle GPUs and as many new vGPUs as a demand needs besides, of one model.

        It opens as few as possible, then the smallest, then the first model by name. None if
        nothing has to be opened for one of the models, or there are too few GPUs.
        """
        if not self.unplaced:
            return None
        masks = self._large_enough(kind)
        found: list[tuple[OpeningScore, str, Candidate]] = []
        for model in {free.model for free in self.unplaced if kind.model in ("", free.model)}:
            gpus = masks.get(model, 0) & self.idle
            missing = max(kind.whole, 1) - gpus.bit_count()
            fitting = [
                free
                for free in self.unplaced
                if free.model == model and free.memory_bytes >= kind.memory
            ]
            if 0 < missing <= len(fitting):
                opened = tuple(fitting[:missing])
                score = OpeningScore(missing, sum(free.memory_bytes for free in opened))
                found.append((score, model, Candidate(score, gpus, opened)))
        return min(found)[-1] if found else None

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
        self.free = free + MICROS * len(self.unplaced)
        self.idle, self.in_use = idle, in_use

    def _large_enough(self, kind: DemandKind) -> dict[str, int]:
        """For each suitable model, its GPUs that are large enough, idle or not, as bits."""
        key = (kind.model, kind.memory)
        cached = self._masks.get(key)
        if cached is not None:
            return cached
        model, memory = key
        masks: dict[str, int] = {}
        for number, device in self.devices.items():
            if model in ("", device.model) and device.memory_bytes >= memory:
                masks[device.model] = masks.get(device.model, 0) | 1 << number
        if len(self._masks) >= _MAX_KINDS:
            self._masks.clear()
        self._masks[key] = masks
        return masks


def _arranged(node: Node, devices: list[Device]) -> tuple[dict[int, Device], Closest]:
    numbered = {device.number: device for device in devices if device.number is not None}
    rows = len(node.links)
    if rows and len(numbered) == len(devices) and all(0 <= index < rows for index in numbered):
        return numbered, closest(node.links)
    devices.sort(key=_by_name)
    return dict(enumerate(devices)), closest(flat(len(devices)))


def _by_name(device: Device) -> tuple[object, ...]:
    """Sorts vGPUs by name, then free GPUs by UUID."""
    return not device.id, natural(device.name), natural(device.id), natural(device.uuid)


def _as_device(node: str, gpu: SelectableGpu) -> Device:
    """A free GPU as an idle device, which has no id yet."""
    return Device(
        id="",
        node=node,
        row=gpu.row,
        uuid=gpu.uuid,
        model=gpu.kind.model,
        memory_bytes=gpu.kind.memory_bytes,
    )


def _unplaced(node: Node) -> tuple[FreeGpu, ...]:
    """The free GPUs of a node that cannot be selected, the smallest first."""
    if not node.free:
        return ()
    rest = Counter(node.free) - Counter(gpu.kind for gpu in node.selectable)
    return tuple(sorted(rest.elements(), key=lambda kind: (kind.memory_bytes, kind.model)))


def _score_then_index(best: Best) -> tuple[object, int]:
    """Sets of different models have no GPU in common: the smallest index decides."""
    score, gpus = best
    return score, gpus & -gpus
