"""Fills a cluster with the jobs of a workload for ever.

So the evaluation of FGD (USENIX ATC '23, section 6) compares policies: jobs drawn from a trace
arrive until together they ask for more GPUs than there are, and what could be placed is counted.
"""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from kubeshare.core.units import MICROS
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER, Job


class Filled:
    """A workload: all jobs once, in random order, then random ones of them.

    Each is drawn and placed by itself: members of a gang are no gang here.

    Args:
        jobs: to draw from.
        gpus: the GPUs of the cluster.
        ratio: for how many times as many GPUs the jobs ask together.

    Raises:
        SimulationError: the ratio is not more than 0, or no job asks for a GPU.
    """

    def __init__(self, jobs: Iterable[Job], gpus: int, ratio: float) -> None:
        self._jobs = list(jobs)
        self._micros = gpus * MICROS * ratio
        if not 0 < ratio <= 100:
            raise SimulationError(f"fill: {ratio:g} is not from 0 to 100")
        if not any(map(_micros, self._jobs)):
            raise SimulationError("fill: no job of the file asks for a GPU")
        self.count = sum(1 for _ in self.draw(0))

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed, one a second."""
        random, asked = Random(seed), 0  # noqa: S311 - repeatable on purpose
        for number, job in enumerate(self._endless(random)):
            if asked + _micros(job) > self._micros:
                return
            asked += _micros(job)
            uid = f"{job.uid}-{number}"
            demand = job.demand and msgspec.structs.replace(job.demand, uid=uid)
            yield msgspec.structs.replace(
                job,
                uid=uid,
                demand=demand,
                arrival_s=float(number),
                work_s=FOREVER,
                gang=None,
                service_s=0,
            )

    def _endless(self, random: Random) -> Iterator[Job]:
        shuffled = self._jobs.copy()
        random.shuffle(shuffled)
        yield from shuffled
        while True:
            yield random.choice(self._jobs)


def _micros(job: Job) -> int:
    return job.demand.request_micros * job.demand.count if job.demand else 0
