"""Draws random jobs: Poisson arrivals, normally distributed demands.

Section 5.3 of the KubeShare paper: the demand of an inference job follows its request rate, and
its work takes as long on a whole GPU as on the share that it demands.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.units import MICROS, Memory
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job

_STEP = MICROS // 100
"""Demands are hundredths of a GPU, as people write them."""


class PoissonJobs(msgspec.Struct, frozen=True, kw_only=True):
    """A workload.

    Attributes:
        count: the number of jobs.
        interarrival_s: the mean time between two.
        duration_s: how long each runs on the share that it demands.
        demand_mean, demand_deviation: of the normal distribution of demands, in GPUs. Demands
            are rounded to hundredths and clipped to 0.01 and 1. Memory follows in proportion.

    Raises:
        SimulationError: a number is out of range.
    """

    count: int
    interarrival_s: float
    duration_s: float
    demand_mean: float
    demand_deviation: float

    def __post_init__(self) -> None:
        positive = {"interarrival": self.interarrival_s, "duration": self.duration_s}
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise SimulationError(f"{name}: {value:g} s is not more than 0")
        if self.count < 1:
            raise SimulationError(f"jobs: {self.count} is less than one")
        if not 0 < self.demand_mean <= 1:
            raise SimulationError(f"demand mean: {self.demand_mean:g} is not from 0 to 1 GPU")
        if not 0 <= self.demand_deviation < float("inf"):
            raise SimulationError(f"demand deviation: {self.demand_deviation:g} is negative")

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed, in the order of their arrival."""
        random, now = Random(seed), 0.0  # noqa: S311 - repeatable on purpose
        for number in range(self.count):
            now += random.expovariate(1 / self.interarrival_s)
            drawn = random.gauss(self.demand_mean, self.demand_deviation) * MICROS
            micros = min(MICROS, max(_STEP, round(drawn / _STEP) * _STEP))
            name = f"job-{number}"
            yield Job(
                uid=name,
                name=name,
                arrival_s=now,
                work_s=self.duration_s,
                need_micros=micros,
                demand=Demand(
                    uid=name, name=name, request_micros=micros, memory=Memory(micros=micros)
                ),
            )
