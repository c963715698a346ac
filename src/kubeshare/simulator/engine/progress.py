"""How fast jobs progress on the GPUs that they share.

Each GPU's time is divided by the arbiter's own rule (:mod:`kubeshare.core.token.fair_share`). A
job that needs less than its limit is as one with that limit: it wants no more.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache

import msgspec

from kubeshare.core.token.fair_share import fair_shares
from kubeshare.core.units import MICROS
from kubeshare.simulator.engine.requests import RequestQueue
from kubeshare.simulator.jobs import Job

Slowdowns = Mapping[tuple[str, str], float]
"""Kind of a job, kind of a co-runner → the factor by which the co-runner slows the job, beyond
what it takes of the GPU's time."""


class Running(msgspec.Struct, eq=False):
    """A placed job.

    Attributes:
        job: the job.
        node: its node.
        devices: the ids of the devices that it holds; none if it uses no GPU.
        placed_s: when it was placed.
        left_s: the work that was left at ``since_s``, in seconds at full speed.
        since_s: when its speed changed last; None before it has started.
        pace: the part of the GPU time that it needs which it gets.
        speed: the fraction of full speed at which it progresses: its pace, less what co-runners
            slow it beyond that.
        requests: those of an inference job that has started.
        version: changes with its speed: an event of another one is outdated.
    """

    job: Job
    node: str
    devices: tuple[str, ...]
    placed_s: float
    left_s: float
    since_s: float | None = None
    pace: float = 0.0
    speed: float = 0.0
    requests: RequestQueue | None = None
    version: int = 0

    def advance(self, now: float) -> None:
        """Account for the work done until now."""
        assert self.since_s is not None
        self.left_s = max(0.0, self.left_s - (now - self.since_s) * self.speed)
        self.since_s = now

    def wants(self, request: int, limit: int) -> tuple[int, int]:
        """Request and limit of a share, as far as it needs them."""
        return wants_of(self.job.need_micros, request, limit)


def wants_of(need: int, request: int, limit: int) -> tuple[int, int]:
    """Request and limit of a share, as far as a need goes; all in micros."""
    return min(request, need), min(limit, need)


@lru_cache(maxsize=1 << 16)
def shares_of(wants: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The micros of one GPU that shares get, each given as request and limit.

    Few combinations differ, so they are cached.
    """
    return tuple(fair_shares(dict(enumerate(wants))).values())


def pace_of(running: Running, shares: Collection[int]) -> float:
    """The part of the GPU time that a job needs which it gets, 1 at most.

    Args:
        running: the job.
        shares: the micros that it gets of each of its GPUs; it goes as fast as on the slowest.
    """
    return min(1.0, min(shares, default=MICROS) / running.job.need_micros)
