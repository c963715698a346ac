"""Random jobs that arrive by a Poisson process."""

from collections.abc import Iterator
from random import Random

from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.random_jobs import RandomJobs


class PoissonJobs(RandomJobs, frozen=True, kw_only=True):
    """A workload.

    Attributes:
        interarrival_s: the mean time between two.

    Raises:
        SimulationError: a number is out of range.
    """

    interarrival_s: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.interarrival_s < float("inf"):
            raise SimulationError(f"interarrival: {self.interarrival_s:g} s is not more than 0")

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed, in the order of their arrival."""
        random, now = Random(seed), 0.0  # noqa: S311 - repeatable on purpose
        for number in range(self.count):
            now += random.expovariate(1 / self.interarrival_s)
            yield self.job(number, now, random)
