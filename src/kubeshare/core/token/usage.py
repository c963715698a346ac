"""How much of a GPU's time a member used of late.

`DecayedAverage` forgets with a time constant instead of a hard window, so it
never jumps when an old grant leaves the window; its mean over time is the share
of time used.

`SlidingWindow` is the measure of the KubeShare paper (section 4.5): time held
within the last seconds. It is exact about them, and shows figures 6 and 7 as
the paper has them.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kubeshare.core.units import MICROS

TAU_NS: Final = 2_000_000_000
"""Time constant of the average: after two seconds 37 % of the past is left."""

WINDOW_NS: Final = 10_000_000_000
"""Of the paper's implementation."""


class Usage(Protocol):
    """The share of time used, 0 to 1; times are ns on the caller's monotonic clock."""

    def at(self, now: int, *, using: bool) -> float:
        """The share at `now`, when since the last `advance` all or none was used."""

    def advance(self, now: int, *, using: bool) -> None:
        """Account for the time up to `now`; times before the last one change nothing."""

    def add(self, start: int, end: int) -> None:
        """Account afterwards for a use that was taken for none, before the last `advance`."""


class DecayedAverage:
    """The share of time used, exponentially decayed.

    Args:
        share: where it starts, 0 to 1.
        now: ns.
        tau_ns: the time constant.
    """

    __slots__ = ("_at_ns", "_share", "_tau_ns")

    def __init__(self, share: float, now: int, tau_ns: int = TAU_NS) -> None:
        self._share = share
        self._at_ns = now
        self._tau_ns = tau_ns

    def at(self, now: int, *, using: bool) -> float:
        """The share at `now`, when since the last `advance` all or none was used."""
        decay = math.exp(-max(0, now - self._at_ns) / self._tau_ns)
        used = 1.0 - decay if using else 0.0
        return self._share * decay + used

    def advance(self, now: int, *, using: bool) -> None:
        """Account for the time up to `now`; times before the last one change nothing."""
        if now > self._at_ns:
            self._share = self.at(now, using=using)
            self._at_ns = now

    def add(self, start: int, end: int) -> None:
        """Account afterwards for a use that was taken for none, before the last `advance`."""
        tau = self._tau_ns
        self._share += math.exp((end - self._at_ns) / tau) - math.exp((start - self._at_ns) / tau)


class SlidingWindow:
    """The share of the last `window_ns` that was used; a newcomer has used nothing.

    It remembers one pair of times for each use that others interrupted, at most
    as many as fit the window.
    """

    __slots__ = ("_at_ns", "_uses", "_window_ns")

    def __init__(self, now: int, window_ns: int = WINDOW_NS) -> None:
        self._at_ns = now
        self._window_ns = window_ns
        self._uses: deque[tuple[int, int]] = deque()

    def at(self, now: int, *, using: bool) -> float:
        """The share at `now`, when since the last `advance` all or none was used."""
        now = max(now, self._at_ns)
        begin = now - self._window_ns
        used = sum(end - max(start, begin) for start, end in self._uses if end > begin)
        if using:
            used += now - max(self._at_ns, begin)
        return used / self._window_ns

    def advance(self, now: int, *, using: bool) -> None:
        """Account for the time up to `now`; times before the last one change nothing."""
        if now <= self._at_ns:
            return
        if using:
            start = self._at_ns
            if self._uses and self._uses[-1][1] == start:
                start = self._uses.pop()[0]
            self._uses.append((start, now))
        self._at_ns = now
        while self._uses and self._uses[0][1] <= now - self._window_ns:
            self._uses.popleft()

    def add(self, start: int, end: int) -> None:
        """Account afterwards for a use that was taken for none, before the last `advance`."""
        self._uses = deque(sorted([*self._uses, (start, end)]))


class Measure(NamedTuple):
    """How use is measured and requests are kept.

    Attributes:
        usage: makes the measure of a new part from its request in micros and the time in ns.
        exact_requests: whether requests are kept by an exact account, else by this measure.
    """

    usage: Callable[[int, int], Usage]
    exact_requests: bool


def _from_its_request(request: int, now: int) -> Usage:
    """A newcomer starts at its request, so it neither storms in nor waits."""
    return DecayedAverage(request / MICROS, now)


def _from_nothing(_request: int, now: int) -> Usage:
    return SlidingWindow(now)


DECAYED_AVERAGE: Final = Measure(_from_its_request, exact_requests=True)
SLIDING_WINDOW: Final = Measure(_from_nothing, exact_requests=False)
