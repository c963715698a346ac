"""Orders the GPUs of a node for one of several shares.

The first share is placed by the rules of the Gaia paper, whole GPUs as the closest set. A further
share goes as near to the GPUs of those before it as it fits: lowest level of the farthest link,
then lowest sum of levels, then the GPU with holders that has the least compute and memory left,
then an idle one. A free GPU that is not yet a vGPU has no known links unless it can be selected,
so it counts as farther away than any other.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.several_shares.search import Gpu, Key, Preference, one_by_one
from kubeshare.core.policies.topology.node_state import NodeState, whole_gpus
from kubeshare.core.topology.links import Level
from kubeshare.core.topology.tree import bits

_UNKNOWN: Final = Level.SYS + Level.NVLINK
"""The level of a link to a GPU that is not yet known, one step beyond all others."""


def prefer_near(node: Node, devices: Collection[Device]) -> Preference:
    """The preference of the topology policy on one node."""
    return _Near(NodeState(node, devices))


class _Near:
    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._numbers = {
            device.id or device.uuid: number for number, device in state.devices.items()
        }

    def __call__(
        self, wanted: Demand, fitting: Sequence[Gpu], taken: Sequence[Gpu]
    ) -> Iterator[tuple[Key, tuple[Gpu, ...]]]:
        """See :class:`kubeshare.core.policies.several_shares.search.Preference`."""
        whole = whole_gpus(wanted)
        if whole:
            fitting = [gpu for gpu in fitting if gpu.device.idle]
        if taken:
            yield from one_by_one(lambda gpu: self._distance(gpu, taken))(wanted, fitting, taken)
        elif whole:
            yield from self._sets(fitting, whole)
        else:
            yield from one_by_one(self._fragment)(wanted, fitting, taken)

    def _distance(self, gpu: Gpu, taken: Sequence[Gpu]) -> Key:
        levels = [self._level(gpu, other) for other in taken]
        return max(levels), sum(levels), *_left(gpu), self._order(gpu)

    def _level(self, gpu: Gpu, other: Gpu) -> int:
        if gpu.device.id == other.device.id:
            return Level.SELF
        row, column = self._number(gpu), self._number(other)
        if row is None or column is None:
            return _UNKNOWN
        return self._state.closest.tree.links[row][column]

    def _fragment(self, gpu: Gpu) -> Key:
        """Fragment: GPUs with holders by what they have left, then idle ones, then new ones."""
        number = self._number(gpu)
        if number is None:
            return 2, (), self._order(gpu)
        if not gpu.device.idle:
            return 0, _left(gpu), self._order(gpu)
        score, _ = self._best(1 << number, 0)
        return 1, score, self._order(gpu)

    def _sets(self, fitting: Sequence[Gpu], whole: int) -> Iterator[tuple[Key, tuple[Gpu, ...]]]:
        """Sets of whole GPUs: those of known GPUs by their score, then those with new ones."""
        known = {number: gpu for gpu in fitting if (number := self._number(gpu)) is not None}
        for score, numbers in self._ranked(sum(1 << number for number in known), whole):
            chosen = bits(numbers)
            yield (0, score, tuple(chosen)), tuple(known[number] for number in chosen)
        ordered = sorted(fitting, key=self._order)
        for group in combinations(ordered, whole):
            if any(self._number(gpu) is None for gpu in group):
                yield (1, (), tuple(map(self._order, group))), group

    def _ranked(self, allowed: int, whole: int) -> Iterator[tuple[Key, int]]:
        """All sets of allowed GPUs, the best first.

        A set that is not the best of some GPUs lacks one GPU of the best, so it is among the
        sets of the others.
        """
        candidates: list[tuple[Key, list[int], int]] = []
        tried = set()

        def add(among: int) -> None:
            if among not in tried and among.bit_count() >= whole:
                tried.add(among)
                score, found = self._best(among, whole)
                heappush(candidates, (score, list(bits(found)), among))

        add(allowed)
        yielded = set()
        while candidates:
            score, numbers, among = heappop(candidates)
            found = sum(1 << number for number in numbers)
            if found not in yielded:
                yielded.add(found)
                yield score, found
            for number in numbers:
                add(among & ~(1 << number))

    def _best(self, allowed: int, whole: int) -> tuple[Key, int]:
        best = self._state.closest.best(self._state.idle, allowed, whole)
        assert best is not None, "there are enough"
        return best

    def _number(self, gpu: Gpu) -> int | None:
        return self._numbers.get(gpu.device.uuid if gpu.new else gpu.device.id)

    def _order(self, gpu: Gpu) -> tuple[bool, int, str]:
        number = self._number(gpu)
        return number is None, number or 0, natural(gpu.device.id)


def _left(gpu: Gpu) -> tuple[bool, int, int]:
    """In use first, then the least compute and memory left."""
    return gpu.device.idle, gpu.device.compute_left, gpu.device.memory_left
