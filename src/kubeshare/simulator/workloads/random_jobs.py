"""What random jobs have in common: normally distributed demands.

Section 5.3 of the KubeShare paper: the demand of an inference job follows its request rate, and
its work takes as long on a whole GPU as on the share that it demands.
"""

from random import Random

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.units import MICROS, Memory
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job

_STEP = MICROS // 100
"""Demands are hundredths of a GPU, as people write them."""


class RandomJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs to draw.

    Attributes:
        count: the number of jobs.
        duration_s: how long each runs on the share that it demands.
        demand_mean, demand_deviation: of the normal distribution of demands, in GPUs. Demands
            are rounded to hundredths and clipped to 0.01 and 1. Memory follows in proportion.
        service_s: as in :class:`~kubeshare.simulator.jobs.Job`, of all.

    Raises:
        SimulationError: a number is out of range.
    """

    count: int
    duration_s: float
    demand_mean: float
    demand_deviation: float
    service_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise SimulationError(f"duration: {self.duration_s:g} s is not more than 0")
        if self.count < 1:
            raise SimulationError(f"jobs: {self.count} is less than one")
        if not 0 < self.demand_mean <= 1:
            raise SimulationError(f"demand mean: {self.demand_mean:g} is not from 0 to 1 GPU")
        if not 0 <= self.demand_deviation < float("inf"):
            raise SimulationError(f"demand deviation: {self.demand_deviation:g} is negative")

    def job(self, number: int, arrival_s: float, random: Random) -> Job:
        """A job with a demand that is drawn."""
        drawn = random.gauss(self.demand_mean, self.demand_deviation) * MICROS
        micros = min(MICROS, max(_STEP, round(drawn / _STEP) * _STEP))
        name = f"job-{number}"
        return Job(
            uid=name,
            name=name,
            arrival_s=arrival_s,
            work_s=self.duration_s,
            need_micros=micros,
            service_s=self.service_s,
            demand=Demand(uid=name, name=name, request_micros=micros, memory=Memory(micros=micros)),
        )
