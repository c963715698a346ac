"""What each job's share of a saturated GPU should come to, from requests and limits alone.

The token's rules (paper, section 4.5) drop who is at its limit, then serve who
is furthest below its request, then who has had the least. With everybody always
hungry that ends where a common water level stands: each job has the level,
raised to its request and cut at its limit, and the whole GPU is in use or
everybody is at the limit.
"""

from collections.abc import Mapping
from typing import TypeVar

from kubeshare.core.units import MICROS

Name = TypeVar("Name")


def fair_shares(asks: Mapping[Name, tuple[int, int]]) -> dict[Name, int]:
    """The share of each job when all of them always have work.

    Args:
        asks: (request, limit) of each job in micros; the requests sum to at most one GPU.

    Returns:
        Micros for each job. They sum to at most one GPU, and fall short of it only
        where every job is at its limit, or by less than one micro a job.

    Raises:
        ValueError: the requests are more than one GPU, or a request is above its limit.
    """
    if sum(request for request, _ in asks.values()) > MICROS:
        raise ValueError("the requests are more than one GPU")
    if any(not 0 <= request <= limit for request, limit in asks.values()):
        raise ValueError("a request is above its limit")
    lowest, highest = 0, MICROS
    while lowest < highest:
        level = (lowest + highest + 1) // 2
        if sum(_at(level, *ask) for ask in asks.values()) <= MICROS:
            lowest = level
        else:
            highest = level - 1
    return {name: _at(lowest, *ask) for name, ask in asks.items()}


def _at(level: int, request: int, limit: int) -> int:
    return min(max(level, request), limit)
