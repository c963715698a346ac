"""How long the waits for the tokens of a machine took."""

from bisect import bisect_left
from typing import Final

WAIT_BOUNDS_NS: Final = tuple(
    milliseconds * 1_000_000
    for milliseconds in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
)
"""The longest wait of each bucket but the last, which has those that took longer."""


class Waits:
    """Counts the waits that ended, of all members together.

    Attributes:
        counts: how many there were, by bucket.
        total_ns: how long they took together.
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(WAIT_BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, waited_ns: int) -> None:
        """Count a wait, for one GPU."""
        self.counts[bisect_left(WAIT_BOUNDS_NS, waited_ns)] += 1
        self.total_ns += waited_ns
