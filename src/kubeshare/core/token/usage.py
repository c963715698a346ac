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

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at `now`; `using_since`: the begin of a use that goes on."""

    def use(self, start: int, end: int) -> None:
        """Account for a use, which may lie before others that are accounted for."""


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

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at `now`; `using_since`: the begin of a use that goes on."""
        tau = self._tau_ns
        share = (
            self._share * math.exp((self._at_ns - now) / tau) if now > self._at_ns else self._share
        )
        if using_since is not None and now > using_since:
            share += 1.0 - math.exp((using_since - now) / tau)
        return share

    def use(self, start: int, end: int) -> None:
        """Account for a use, which may lie before others that are accounted for."""
        at, tau = max(end, self._at_ns), self._tau_ns
        used = math.exp((end - at) / tau) - math.exp((start - at) / tau)
        self._share = self.at(at) + used
        self._at_ns = at


class SlidingWindow:
    """The share of the last `window_ns` that was used; a newcomer has used nothing.

    It remembers one pair of times for each use that others interrupted, at most
    as many as fit the window.
    """

    __slots__ = ("_uses", "_window_ns")

    def __init__(self, window_ns: int = WINDOW_NS) -> None:
        self._window_ns = window_ns
        self._uses: deque[tuple[int, int]] = deque()

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at `now`; `using_since`: the begin of a use that goes on."""
        begin = now - self._window_ns
        used = sum(end - max(start, begin) for start, end in self._uses if end > begin)
        if using_since is not None:
            used += now - max(using_since, begin)
        return used / self._window_ns

    def use(self, start: int, end: int) -> None:
        """Account for a use, which may lie before others that are accounted for."""
        uses = self._uses
        if uses and start < uses[-1][1]:
            self._uses = deque(sorted([*uses, (start, end)]))
            return
        if uses and start == uses[-1][1]:
            start = uses.pop()[0]
        uses.append((start, end))
        while uses[0][1] <= end - self._window_ns:
            uses.popleft()


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


def _from_nothing(_request: int, _now: int) -> Usage:
    return SlidingWindow()


DECAYED_AVERAGE: Final = Measure(_from_its_request, exact_requests=True)
SLIDING_WINDOW: Final = Measure(_from_nothing, exact_requests=False)
