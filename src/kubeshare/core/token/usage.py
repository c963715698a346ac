"""How much of a GPU's time a member used recently.

:class:`DecayedAverage` forgets with a time constant instead of a hard window, so it never jumps
when an old grant leaves the window; its mean over time is the share of time used.

:class:`SlidingWindow` is the measure of the KubeShare paper (section 4.5): the time held within
the last seconds, exactly. It reproduces figures 6 and 7 of the paper.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kubeshare.core.units import MICROS

TAU_NS: Final = 2_000_000_000
"""Time constant of the average: after two seconds the past counts 37 %."""

WINDOW_NS: Final = 10_000_000_000
"""The window of the paper's implementation."""


class Usage(Protocol):
    """The share of time used, 0 to 1; times are ns on the caller's monotonic clock."""

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at ``now``; ``using_since``: the start of a use that goes on."""

    def use(self, start: int, end: int) -> None:
        """Account for a use, possibly earlier than uses already accounted for."""

    def cap(self, most: float, now: int) -> None:
        """Forget what was used beyond this share."""


class DecayedAverage:
    """The share of time used, exponentially decayed.

    Args:
        share: the initial value, 0 to 1.
        now: ns.
        tau_ns: the time constant.
    """

    __slots__ = ("_at_ns", "_share", "_tau_ns")

    def __init__(self, share: float, now: int, tau_ns: int = TAU_NS) -> None:
        self._share = share
        self._at_ns = now
        self._tau_ns = tau_ns

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at ``now``; ``using_since``: the start of a use that goes on."""
        tau = self._tau_ns
        share = (
            self._share * math.exp((self._at_ns - now) / tau) if now > self._at_ns else self._share
        )
        if using_since is not None and now > using_since:
            share += 1.0 - math.exp((using_since - now) / tau)
        return share

    def use(self, start: int, end: int) -> None:
        """Account for a use, possibly earlier than uses already accounted for."""
        at, tau = max(end, self._at_ns), self._tau_ns
        used = math.exp((end - at) / tau) - math.exp((start - at) / tau)
        self._share = self.at(at) + used
        self._at_ns = at

    def cap(self, most: float, now: int) -> None:
        """Forget what was used beyond this share."""
        self._share = min(most, self.at(now))
        self._at_ns = max(now, self._at_ns)


class SlidingWindow:
    """The share of the last ``window_ns`` that was used; a newcomer has used nothing.

    It stores one pair of times for each use up to an interruption, bounded by the window.
    """

    __slots__ = ("_uses", "_window_ns")

    def __init__(self, window_ns: int = WINDOW_NS) -> None:
        self._window_ns = window_ns
        self._uses: deque[tuple[int, int]] = deque()

    def at(self, now: int, using_since: int | None = None) -> float:
        """The share at ``now``; ``using_since``: the start of a use that goes on."""
        begin = now - self._window_ns
        used = sum(end - max(start, begin) for start, end in self._uses if end > begin)
        if using_since is not None:
            used += now - max(using_since, begin)
        return used / self._window_ns

    def use(self, start: int, end: int) -> None:
        """Account for a use, possibly earlier than uses already accounted for."""
        uses = self._uses
        if uses and start < uses[-1][1]:
            self._uses = deque(sorted([*uses, (start, end)]))
            return
        if uses and start == uses[-1][1]:
            start = uses.pop()[0]
        uses.append((start, end))
        while uses[0][1] <= end - self._window_ns:
            uses.popleft()

    def cap(self, most: float, now: int) -> None:
        """Forget what was used beyond this share: of each use the same part at its end."""
        share, begin = self.at(now), now - self._window_ns
        if share > most:
            within = ((max(start, begin), end) for start, end in self._uses if end > begin)
            self._uses = deque(
                (start, start + int((end - start) * most / share)) for start, end in within
            )


class Measure(NamedTuple):
    """How use is measured and requests are kept.

    Attributes:
        usage: makes the measure of a new share from its request in micros and the time in ns.
        exact_requests: whether requests are kept by an exact account rather than this measure.
    """

    usage: Callable[[int, int], Usage]
    exact_requests: bool


def _starting_at_request(request: int, now: int) -> Usage:
    """A newcomer starts at its request: it neither pushes others aside nor waits."""
    return DecayedAverage(request / MICROS, now)


def _starting_empty(_request: int, _now: int) -> Usage:
    return SlidingWindow()


DECAYED_AVERAGE: Final = Measure(_starting_at_request, exact_requests=True)
SLIDING_WINDOW: Final = Measure(_starting_empty, exact_requests=False)
