"""Fragmentation gradient descent: the node whose fragmentation a job raises least.

Weng et al., USENIX ATC '23. What a fragment is, is defined in
:mod:`kubeshare.core.fragmentation.measure`; here it is computed for many states of nodes. The
classes are the kinds of demand of the workload, and a node without the CPUs for a job has no room
for it.

Nodes are ranked in hundredths of a sigmoid of the rise in GPUs, as in the published simulator: on
the open trace, whole numbers place half a percent more than the rise itself does.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from kubeshare.core.fragmentation.measure import DemandClass
from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.node_rooms import Ask, GpuRoom, NodeRoom
from kubeshare.simulator.baselines.usable import ClassWeights, UsableGpus
from kubeshare.simulator.engine.fragments import kinds_of
from kubeshare.simulator.jobs import Job

MAX_CLASSES: Final = 4096
"""The most kinds of demand of a workload."""

MAX_KNOWN: Final = 1 << 16
"""The most states of nodes whose fragmentation is kept; at one more all are computed anew."""


class Fragmentation:
    """Ranks nodes by how much a job raises their fragmentation.

    Args:
        kinds: how often each kind of demand occurs in the workload, with its CPUs.
    """

    def __init__(self, kinds: Mapping[DemandClass, int]) -> None:
        total = sum(kinds.values())
        by_class: dict[DemandClass, list[tuple[int, float]]] = {}
        for kind, times in sorted(kinds.items(), key=lambda one: one[0].cpu_millis):
            each = DemandClass(micros=kind.micros, count=kind.count, models=kind.models)
            by_class.setdefault(each, []).append((kind.cpu_millis, times / total))
        # A class without GPUs leaves everything a fragment, whatever is placed.
        self._classes = [
            ClassWeights(
                each, [cpu for cpu, _ in rows], [0.0, *accumulate(part for _, part in rows)]
            )
            for each, rows in sorted(by_class.items(), key=lambda one: one[0].micros)
            if each.count
        ]
        self._least = self._classes[0].of.micros if self._classes else 0
        self._asked_cpus = sorted({cpu for each in self._classes for cpu in each.cpu_millis})
        self._named = frozenset([model for each in self._classes for model in each.of.models])
        self._usable: dict[tuple[int, str | None], UsableGpus] = {}
        self._kept = 0

    def of(self, micros: list[int], cpu_millis: int, model: str) -> float:
        """The fragmentation of a node, less what is left of its GPUs.

        Args:
            micros: what is left of each GPU.
            cpu_millis: what is left of the CPUs.
            model: the model of its GPUs.
        """
        return -self._usable_with(cpu_millis, model).of(tuple(sorted(micros)))

    def _usable_with(self, cpu_millis: int, model: str) -> UsableGpus:
        """What is usable of nodes with so many CPUs and this model."""
        counted = self.counted_cpus(cpu_millis)
        # Models that no class names are alike.
        key = counted, model if model in self._named else None
        known = self._usable.get(key)
        if known is None:
            known = self._usable[key] = UsableGpus(self._classes, counted, model, self.served)
        return known

    def _usable_of(self, left: tuple[int, ...], usable: UsableGpus) -> float:
        """How much is usable; forget all if too much is kept."""
        known = usable.known.get(left)
        if known is not None:
            return known
        self._kept += 1
        if self._kept > MAX_KNOWN:
            self._usable.clear()
            self._kept = 0
        return usable.of(left)

    def counted_cpus(self, cpu_millis: int) -> int:
        """So many CPUs of a node count; with as many, nodes are alike."""
        at = bisect_right(self._asked_cpus, cpu_millis)
        return self._asked_cpus[at - 1] if at else 0

    def served(self, weights: ClassWeights, jobs: int, cpu_millis: int) -> tuple[float, float]:
        """How many jobs of a class the CPUs suffice for, weighted by how often each occurs.

        Args:
            weights: the class; enough GPUs have room for one of its jobs.
            jobs: so many use all that is left of those GPUs.
            cpu_millis: what is left of the node's CPUs.

        Returns:
            how often those occur that use all, and how many others the CPUs suffice for.
        """
        del jobs  # the CPUs are taken to suffice for all if they do for one
        return weights.with_cpus(cpu_millis), 0.0

    def score(self, rise: float, ask: Ask, left: Sequence[int]) -> float:
        """The published score of a rise in fragmentation, from 0 to 100, with its sign changed.

        Args:
            rise: in micros.
            ask: what the job asks for.
            left: the micros that are left of each GPU that it takes, before.
        """
        del ask, left  # the rise says it all
        return float(-int(100 / (1 + math.exp(rise / MICROS))))

    def __call__(self, room: NodeRoom, ask: Ask) -> tuple[float, tuple[str, ...]] | None:
        """Rank a node; where a share may go to several GPUs, by the best of them."""
        gpus = ask.fitting(room)
        if gpus is None:
            return None
        left = room.left[bisect_left(room.left, self._least) :]
        before = self._usable_of(left, self._usable_with(room.cpu_millis, room.model))
        then = self._usable_with(room.cpu_millis - ask.host.cpu_millis, room.model)
        choices: Iterable[Sequence[GpuRoom]] = [gpus[: ask.count]]
        if ask.shares:
            # GPUs with as much left are alike; the first of them stands for all.
            choices = {gpu.micros: (gpu,) for gpu in reversed(gpus)}.values()
        best = None
        for choice in choices:
            taken = [gpu.micros for gpu in choice]
            after = self._usable_of(self._after(left, taken, ask.micros), then)
            rise = before - after - ask.micros * ask.count
            placed = self.score(rise, ask, taken), rise, tuple([gpu.id for gpu in choice])
            if best is None or placed < best:
                best = placed
        assert best is not None  # a share that fits, fits somewhere
        return best[0], best[2]

    def _after(self, left: Sequence[int], taken: Sequence[int], micros: int) -> tuple[int, ...]:
        """What is left when GPUs with so much left have so many micros less."""
        least, now = self._least, list(left)
        for each in taken:
            if each >= least:
                del now[bisect_left(now, each)]
        for each in taken:
            if each - micros >= least:
                insort(now, each - micros)
        return tuple(now)


def kinds_in(jobs: Iterable[Job]) -> Counter[DemandClass]:
    """How often each kind of demand occurs; of more than ``MAX_CLASSES`` kinds those first."""
    kinds: Counter[DemandClass] = Counter()
    for job in jobs:
        for kind in kinds_of(job):
            if kind in kinds or len(kinds) < MAX_CLASSES:
                kinds[kind] += 1
    return kinds
