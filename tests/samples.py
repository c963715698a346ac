"""How much a test tries: all of it in ``make prove``, elsewhere a sample."""

import os
from typing import Final

WHOLE: Final = "KUBESHARE_WHOLE" in os.environ
"""Whether tests try all that they can, as in ``make prove``."""


def count(*, whole: int, sample: int) -> int:
    """How many a test tries; the mark ``sampled`` has ``make prove`` run it."""
    return whole if WHOLE else sample
