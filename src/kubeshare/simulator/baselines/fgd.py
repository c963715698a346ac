"""Fragmentation gradient descent: the node whose fragmentation a job raises least.

Weng et al., USENIX ATC '23. What a fragment is, is defined in
:mod:`kubeshare.core.fragmentation.measure`; here it is computed for many states of nodes. The
classes are the kinds of demand of the workload, and a node without the CPUs for a job has no room
for it.

Nodes are ranked in hundredths of a sigmoid of the rise in GPUs, as in the published simulator: on
the open trace, whole numbers place half a percent more than the rise itself does.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kubeshare.core.fragmentation.measure import DemandClass, usable_micros
from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.node_rooms import Ask, NodeRoom
from kubeshare.simulator.engine.fragments import kinds_of
from kubeshare.simulator.jobs import Job

MAX_CLASSES: Final = 4096
"""The most kinds of demand of a workload."""

MAX_KNOWN: Final = 1 << 16
"""The most states of nodes whose fragmentation is kept; at one more all are computed anew."""


class ClassWeights(msgspec.Struct, frozen=True):
    """A class: its jobs' CPUs in ascending order, and how often any of the first occur."""

    of: DemandClass
    cpu_millis: list[int]
    at_most: list[float]

    def with_cpus(self, cpu_millis: int) -> float:
        """How often a job occurs that needs no more CPUs than these."""
        return self.at_most[bisect_right(self.cpu_millis, cpu_millis)]


class _Hosted(NamedTuple):
    """A class that has room.

    Attributes:
        place: of the class.
        micros: what is left of the GPUs with room for it.
        jobs: how many of its jobs use all of that.
        size: the micros of a job.
    """

    place: int
    micros: int
    jobs: int
    size: int


_Served: TypeAlias = dict[int, tuple[float, float]]
"""How many jobs of a class use all → as in :meth:`Fragmentation.served`."""


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
            for each, rows in by_class.items()
            if each.count
        ]
        self._known: dict[tuple[tuple[int, ...], int, str], float] = {}
        self._hosted_by: dict[tuple[tuple[int, ...], str], list[_Hosted]] = {}
        self._served_by: dict[int, list[_Served]] = {}
        self._steps, self._exact_from = self.cpu_steps(
            {cpu for each in self._classes for cpu in each.cpu_millis}
        )

    def of(self, micros: list[int], cpu_millis: int, model: str) -> float:
        """The fragmentation of a node, less what is left of its GPUs.

        Args:
            micros: what is left of each GPU.
            cpu_millis: what is left of the CPUs.
            model: the model of its GPUs.
        """
        left = tuple(sorted(micros))
        step = self._step(cpu_millis)
        known = self._known.get((left, step, model))
        if known is None:
            _make_room(self._known)
            known = self._known[left, step, model] = self._of(left, cpu_millis, step, model)
        return known

    def _of(self, left: tuple[int, ...], cpu_millis: int, step: int, model: str) -> float:
        hosted = self._hosted_by.get((left, model))
        if hosted is None:
            _make_room(self._hosted_by)
            hosted = self._hosted_by[left, model] = self._hosted(left, model)
        served = self._served_by.get(step)
        if served is None:
            _make_room(self._served_by)
            served = self._served_by[step] = [{} for _ in self._classes]
        usable = 0.0
        for place, micros, jobs, size in hosted:
            known = served[place].get(jobs)
            if known is None:
                known = self.served(self._classes[place], jobs, cpu_millis)
                served[place][jobs] = known
            usable += known[0] * micros + known[1] * size
        return -usable

    def _hosted(self, left: tuple[int, ...], model: str) -> list[_Hosted]:
        """The classes with room on these GPUs."""
        hosted = []
        for place, weights in enumerate(self._classes):
            each = weights.of
            rooms = left[bisect_left(left, each.micros) :]
            micros = usable_micros(rooms, each, model)
            if micros:
                size = each.micros * each.count
                jobs = -(-micros // size) if size else 1  # such a job leaves all that there is
                hosted.append(_Hosted(place, micros, jobs, size))
        return hosted

    def _step(self, cpu_millis: int) -> int:
        """A number that differs where the jobs that so many CPUs suffice for do."""
        if cpu_millis >= self._exact_from:
            return -cpu_millis
        return bisect_right(self._steps, cpu_millis)

    def cpu_steps(self, cpu_millis: Collection[int]) -> tuple[list[int], float]:
        """From which numbers of CPUs on they suffice for more jobs, in ascending order.

        Args:
            cpu_millis: what the jobs ask for.

        Returns:
            the steps, and from where on there are further ones.
        """
        return sorted(cpu_millis), math.inf

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
        micros = [gpu.micros for gpu in room.gpus]
        before = self.of(micros, room.cpu_millis, room.model)
        cpu_millis = room.cpu_millis - ask.host.cpu_millis
        if not ask.shares:
            taken = gpus[: ask.count]
            after = self._after(room, {gpu.index for gpu in taken}, ask, cpu_millis)
            rise = after - before - ask.micros * ask.count
            score = self.score(rise, ask, [gpu.micros for gpu in taken])
            return score, tuple(gpu.id for gpu in taken)
        tried: dict[int, tuple[float, float, str]] = {}  # GPUs with as much left are alike
        for gpu in gpus:
            if gpu.micros not in tried:
                after = self._after(room, {gpu.index}, ask, cpu_millis)
                rise = after - before - ask.micros
                tried[gpu.micros] = self.score(rise, ask, (gpu.micros,)), rise, gpu.id
        score, _, device = min(tried.values())
        return score, (device,)

    def _after(self, room: NodeRoom, taken: set[int], ask: Ask, cpu_millis: int) -> float:
        micros = [gpu.micros - ask.micros * (gpu.index in taken) for gpu in room.gpus]
        return self.of(micros, cpu_millis, room.model)


def _make_room(known: dict[Any, Any]) -> None:
    if len(known) >= MAX_KNOWN:
        known.clear()


def kinds_in(jobs: Iterable[Job]) -> Counter[DemandClass]:
    """How often each kind of demand occurs; of more than ``MAX_CLASSES`` kinds those first."""
    kinds: Counter[DemandClass] = Counter()
    for job in jobs:
        for kind in kinds_of(job):
            if kind in kinds or len(kinds) < MAX_CLASSES:
                kinds[kind] += 1
    return kinds
