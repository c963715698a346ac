"""Exponential backoff with jitter."""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from ``first`` to ``last`` seconds, each drawn from its upper half.

    The jitter keeps clients that lost the same server from retrying all at once.

    Args:
        first: largest first delay, in seconds.
        last: largest delay of all, in seconds.
        draw: returns a random number in [0, 1).
    """

    def __init__(
        self, first: float, last: float, draw: Callable[[], float] = random.random
    ) -> None:
        self._first = first
        self._last = last
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """Start again with the first delay, after progress."""
        self._failures = 0

    def next(self) -> float:
        """The delay in seconds after one more failure."""
        # 2**64 outgrows every `last`; a larger exponent overflows.
        bound = min(self._last, self._first * 2.0 ** min(self._failures, 64))
        self._failures += 1
        return bound * (0.5 + self._draw() / 2)
