"""The sample of the fault matrix that every test run plays."""

import samples
from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Point, count_writes
from robustness.fault_matrix.troubles import HARD, TROUBLES

SIMPLE = "alone"
"""The life whose writes meet all troubles; those of the others meet the hard ones in turn."""
EVERY = 6
"""One write in so many is struck; from life to life and trouble to trouble others."""


def thinned(writes: range) -> range:
    """The writes that a test of the matrix strikes: all of them in ``make fault-matrix``."""
    return writes[:: samples.count(whole=1, sample=10)]


def sample(life: str) -> list[Point]:
    """The sampled points of a life."""
    writes = range(1, count_writes(life) + 1)
    if life == SIMPLE:
        return [
            Point(life, trouble, write)
            for number, trouble in enumerate(TROUBLES)
            for write in writes[number % EVERY :: EVERY]
        ]
    first = list(LIVES).index(life)
    struck = writes[first % EVERY :: EVERY]
    return [
        Point(life, HARD[(first + number) % len(HARD)], write)
        for number, write in enumerate(struck)
    ]
