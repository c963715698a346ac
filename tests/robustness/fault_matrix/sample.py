"""The sample of the fault matrix that every test run plays."""

import os

from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Point, count_writes
from robustness.fault_matrix.troubles import HARD, TROUBLES

SIMPLE = "alone"
"""The life whose writes meet all troubles; those of the others meet the hard ones in turn."""
EVERY = 3
"""Every third write is struck; from life to life and trouble to trouble another third."""
WHOLE = "KUBESHARE_WHOLE_MATRIX" in os.environ
"""Whether tests of the matrix strike every write (``make fault-matrix``) or every third."""


def thinned(writes: range) -> range:
    """The writes that a test of the matrix strikes."""
    return writes if WHOLE else writes[::EVERY]


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
