"""How long to wait before trying again."""

import random
from collections.abc import Callable


class Backoff:
    """Waits that double from ``first`` to ``last`` seconds, each drawn from its upper half.

    The draw keeps many clients that lost the same server from coming back as one.

    Args:
        first: seconds of the first wait, at most.
        last: seconds of the longest wait, at most.
        draw: random number in [0, 1).
    """

    def __init__(
        self, first: float, last: float, draw: Callable[[], float] = random.random
    ) -> None:
        self._first = first
        self._last = last
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """There was progress: the next wait is a first one again."""
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait now; the wait after the next failure is longer."""
        # 2**64 outgrows every `last`; a larger exponent would overflow some day.
        bound = min(self._last, self._first * 2.0 ** min(self._failures, 64))
        self._failures += 1
        return bound * (0.5 + self._draw() / 2)
