"""The share that each job should get of a saturated GPU.

The token's rules (paper, section 4.5) drop members at their limit, then serve the one furthest
below its request, then the one that used least. If all jobs always have work, this converges to
a common water level: each job gets the level, raised to its request and cut at its limit, and
either the whole GPU is in use or every job is at its limit.
"""

from collections.abc import Mapping
from typing import TypeVar

from kubeshare.core.units import MICROS

Name = TypeVar("Name")


def fair_shares(jobs: Mapping[Name, tuple[int, int]]) -> dict[Name, int]:
    """The share of each job when all of them always have work.

    Args:
        jobs: (request, limit) of each job in micros; the requests sum to at most one GPU.

    Returns:
        Micros for each job. They sum to at most one GPU, and fall short of it only
        where every job is at its limit, or by less than one micro a job.

    Raises:
        ValueError: the requests are more than one GPU, or a request is above its limit.
    """
    if sum(request for request, _ in jobs.values()) > MICROS:
        raise ValueError("the requests are more than one GPU")
    if any(not 0 <= request <= limit for request, limit in jobs.values()):
        raise ValueError("a request is above its limit")
    lowest, highest = 0, MICROS
    while lowest < highest:
        level = (lowest + highest + 1) // 2
        if sum(_at(level, *job) for job in jobs.values()) <= MICROS:
            lowest = level
        else:
            highest = level - 1
    return {name: _at(lowest, *job) for name, job in jobs.items()}


def _at(level: int, request: int, limit: int) -> int:
    return min(max(level, request), limit)
