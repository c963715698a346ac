"""The amounts of a demand, as parsed from any manifest family."""

from typing import TypedDict

from kubeshare.core.units import Memory


class Amounts(TypedDict, total=False):
    """Fields of :class:`kubeshare.core.demand.Demand`; those left out have its defaults.

    Attributes:
        request_micros: micros reserved.
        limit_micros: micros never exceeded.
        memory: reserved on each GPU.
        count: the number of GPUs.
        proportional: whether compute follows memory.
    """

    request_micros: int
    limit_micros: int
    memory: Memory
    count: int
    proportional: bool
