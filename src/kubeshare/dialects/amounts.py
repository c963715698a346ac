"""The amounts of a demand, as parsed from any manifest family."""

from typing import TypedDict

from kubeshare.core.demand import Share
from kubeshare.core.units import Memory


class Amounts(TypedDict, total=False):
    """Fields of :class:`kubeshare.core.demand.Demand`; those left out have its defaults.

    Attributes:
        request_micros: micros reserved.
        limit_micros: micros never exceeded.
        limit_alone_micros: micros never exceeded by the only holder of a GPU.
        latency_sensitive: whether launches are served promptly.
        memory: reserved on each GPU.
        count: the number of GPUs.
        proportional: whether compute follows memory.
        shares: the different shares, instead of the amounts.
    """

    request_micros: int
    limit_micros: int
    limit_alone_micros: int | None
    latency_sensitive: bool
    memory: Memory
    count: int
    proportional: bool
    shares: tuple[Share, ...]
