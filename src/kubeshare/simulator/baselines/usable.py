"""How much of the GPUs of nodes a workload can use.

Of what is left, by CPUs and model. This is where most of the time of a decision goes, so it looks
at each class of jobs once for each state of a node, and keeps what it found.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from kubeshare.core.fragmentation.measure import DemandClass


class ClassWeights(msgspec.Struct, frozen=True):
    """A class: its jobs' CPUs in ascending order, and how often any of the first occur."""

    of: DemandClass
    cpu_millis: list[int]
    at_most: list[float]

    def with_cpus(self, cpu_millis: int) -> float:
        """How often a job occurs that needs no more CPUs than these."""
        return self.at_most[bisect_right(self.cpu_millis, cpu_millis)]


Served: TypeAlias = Callable[[ClassWeights, int, int], tuple[float, float]]
"""As :meth:`kubeshare.simulator.baselines.fgd.Fragmentation.served`."""


class UsableGpus:
    """How much is usable of nodes with so many CPUs and this model.

    Args:
        classes: in ascending order of their micros, each of at least one GPU.
        cpu_millis: what is left of the CPUs.
        model: of the GPUs.
        served: how many jobs of a class the CPUs suffice for.

    Attributes:
        known: what is left of the GPUs, in ascending order → how much of that is usable.
    """

    __slots__ = ("_cpu_millis", "_rows", "_served", "known")

    def __init__(
        self, classes: Sequence[ClassWeights], cpu_millis: int, model: str, served: Served
    ) -> None:
        self._cpu_millis, self._served = cpu_millis, served
        self._rows: list[tuple[int, int, int, ClassWeights, dict[int, tuple[float, float]]]] = [
            (weights.of.micros, weights.of.count, weights.of.micros * weights.of.count, weights, {})
            for weights in classes
            if weights.cpu_millis[0] <= cpu_millis
            and (not weights.of.models or model in weights.of.models)
        ]
        self.known: dict[tuple[int, ...], float] = {}

    def of(self, left: tuple[int, ...]) -> float:
        """How many micros are usable in the mean over the workload.

        Args:
            left: the micros that are left of each GPU, in ascending order.
        """
        micros, usable = sum(left), 0.0
        first, least, fitting = 0, left[0] if left else 0, len(left)
        for size, count, of_job, weights, served in self._rows if micros else ():
            if least < size:
                while fitting and left[first] < size:
                    micros -= left[first]
                    first, fitting = first + 1, fitting - 1
                if not fitting:
                    break
                least = left[first]
            if fitting < count:
                continue
            # So many jobs use all that is left; one without micros leaves all that there is.
            jobs = -(-micros // of_job) if of_job else 1
            parts = served.get(jobs)
            if parts is None:
                parts = served[jobs] = self._served(weights, jobs, self._cpu_millis)
            usable += parts[0] * micros + parts[1] * of_job
        self.known[left] = usable
        return usable
