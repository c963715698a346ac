"""Two measures of one member's use of a GPU.

`DecayedAverage` answers *who is furthest below its share*. It forgets with a
time constant instead of a hard window, so it never jumps when an old grant
leaves the window; its mean over time is the share of time used.

`Allowance` answers *may it run at all*. The average swings around its mean by
half a grant, so cutting it off at the limit would hold a member below its
limit: a quarter to one point lost, and more for a member whose limit is also
its request and who must wait for others. The allowance is the exact integral
of (limit - use): what is not used while waiting is kept, up to a cap, and what
is overrun is owed.
"""

import math
from typing import Final

from kubeshare.core.units import MICROS

TAU_NS: Final = 2_000_000_000
"""Time constant of the average: after two seconds 37 % of the past is left."""

SHORTEST_GRANT_NS: Final = 5_000_000
"""Below this a handover would cost more than the grant gives."""

_PACE_NS: Final = 1_000_000_000
"""A member at its limit is served about once in this time, in grants as long as that asks."""


class DecayedAverage:
    """The share of time used, exponentially decayed.

    Args:
        share: where it starts, 0 to 1.
        now: ns on the caller's monotonic clock.
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


class Allowance:
    """How long a member may still run before it is above its limit.

    All in integers. Credit grows by `limit` micros each ns, and shrinks by a whole
    GPU each ns that is used. A member whose credit is spent stays *held back* until
    there is enough for one grant, so it does not run in slivers.

    Args:
        limit: micros, less than a whole GPU.
        quota_ns: the longest grant.
        now: ns.
    """

    __slots__ = ("_at_ns", "_cap", "_credit", "_enough", "_limit", "held_back")

    def __init__(self, limit: int, quota_ns: int, now: int) -> None:
        grant_ns = min(quota_ns, max(SHORTEST_GRANT_NS, _PACE_NS * limit // MICROS))
        self._limit = limit
        self._enough = grant_ns * (MICROS - limit)
        self._cap = 2 * quota_ns * MICROS
        self._credit = self._enough
        self._at_ns = now
        self.held_back = limit == 0

    def advance(self, now: int, *, using: bool) -> None:
        """Account for the time up to `now`; times before the last one change nothing."""
        elapsed = max(0, now - self._at_ns)
        self._at_ns = max(now, self._at_ns)
        rate = self._limit - MICROS if using else self._limit
        self._add(elapsed * rate)

    def add(self, used_ns: int) -> None:
        """Account afterwards for a use that was taken for none."""
        self._add(-used_ns * MICROS)

    def runs_out_after(self) -> int:
        """The ns of running from the last `advance` after which the credit is spent."""
        return max(0, -(-self._credit // (MICROS - self._limit)))

    def ready_at(self) -> int | None:
        """When a member that is held back and does not run may run again, in ns; None: never."""
        if self._limit == 0:
            return None
        return self._at_ns + max(0, -(-(self._enough - self._credit) // self._limit))

    def _add(self, credit: int) -> None:
        self._credit = min(self._cap, self._credit + credit)
        if self._credit <= 0:
            self.held_back = True
        elif self._credit >= self._enough and self._limit > 0:
            self.held_back = False
