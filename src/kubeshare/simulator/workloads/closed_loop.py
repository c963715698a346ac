"""Draws random jobs of users who wait for each (a closed loop)."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import msgspec

from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.random_jobs import RandomJobs


class ClosedLoopJobs(RandomJobs, frozen=True, kw_only=True):
    """A workload.

    Attributes:
        users: how many there are; each has at most one job at a time.
        think_s: the mean time from the end of a job until its user submits the next one, and
            from the start until the first one; exponentially distributed.

    Raises:
        SimulationError: a number is out of range.
    """

    users: int
    think_s: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.users < 1:
            raise SimulationError(f"users: {self.users} is less than one")
        if not 0 <= self.think_s < float("inf"):
            raise SimulationError(f"think: {self.think_s:g} s is not a time from 0")

    def draw(self, seed: int) -> Iterator[Job]:
        """All jobs of a seed, for who must know them beforehand: each "arrives" after its thought.

        When a job arrives in a run follows from when others end: see :meth:`begin`.
        """
        random = Random(seed)  # noqa: S311 - repeatable on purpose
        for number in range(self.count):
            think_s = random.expovariate(1 / self.think_s) if self.think_s else 0.0
            yield self.job(number, think_s, random)

    def begin(self, seed: int) -> "Loop":
        """The jobs of a seed, one by one.

        The job that is submitted n-th is the same under every policy, whoever submits it.
        """
        return Loop(self.draw(seed), self.users)


class Loop:
    """The jobs of one run.

    Args:
        drawn: all of them; each arrives after as much thought.
        users: how many submit them.

    Attributes:
        first: the first job of each user, in the order of arrival.
    """

    def __init__(self, drawn: Iterator[Job], users: int) -> None:
        self._drawn = drawn
        self.first = sorted(islice(drawn, users), key=lambda job: job.arrival_s)

    def following(self, ended_s: float) -> Job | None:
        """What a user submits whose last job ended, or was refused, at a time; None at the end."""
        job = next(self._drawn, None)
        return job and msgspec.structs.replace(job, arrival_s=ended_s + job.arrival_s)
