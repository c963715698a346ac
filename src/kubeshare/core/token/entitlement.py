"""What a member is owed and what it is allowed, each as an exact account.

An average swings around its mean by half a grant; whoever is served when it
crosses a line, and made to wait when it crosses it again, gets more or less
than the line says, the more so the rarer its grants are. So request and limit
are kept by integrals, which have no such error however long or rare a grant is.
"""

from typing import Final

from kubeshare.core.units import MICROS

SHORTEST_GRANT_NS: Final = 5_000_000
"""Below this a handover would cost more than the grant gives."""

PACE_NS: Final = 1_000_000_000
"""How often a member is served that has its request or its limit, and no more: about once
in this time, in grants as long as that asks."""

_MEMORY_NS: Final = 10_000_000_000
"""How much is owed at most, by a member or to one that waits."""


def paced_grant_ns(share_micros: int, quota_ns: int) -> int:
    """How long a grant lasts of which this share takes one in each `PACE_NS`."""
    return min(quota_ns, max(SHORTEST_GRANT_NS, PACE_NS * share_micros // MICROS))


class Guarantee:
    """How far a member is behind its request.

    It falls behind by its request for each ns, and catches up with each ns that it
    used. Time that is lost between one holder and the next does not count: what
    handovers cost is lost to all in proportion, and does not add up.

    - Who does not want the GPU saves nothing up beyond one grant.
    - Who used more than its request while nobody else was behind took it from
      nobody: that counts for one grant at most. Otherwise it is a debt.

    Args:
        request: micros.
        quota_ns: its longest grant.
        clock_ns: the GPU's time, without what was lost.
    """

    __slots__ = ("_behind", "_clock_ns", "_request", "_slack")

    def __init__(self, request: int, quota_ns: int, clock_ns: int) -> None:
        self._behind = 0  # ns of the whole GPU, in millionths
        self._clock_ns = clock_ns
        self._request = request
        self._slack = paced_grant_ns(request, quota_ns) * MICROS

    def change(self, request: int, quota_ns: int) -> None:
        """It is owed another request from the last `advance` on."""
        self._request = request
        self._slack = paced_grant_ns(request, quota_ns) * MICROS

    def behind(self, clock_ns: int, used_ns: int = 0) -> int:
        """Millionths of a ns by which it is behind, having used `used_ns` since `advance`."""
        return self._behind + (clock_ns - self._clock_ns) * self._request - used_ns * MICROS

    def wait(self, clock_ns: int, *, wanting: bool) -> None:
        """Account for time in which it did not use the GPU."""
        most = _MEMORY_NS * self._request if wanting else self._slack
        self._behind = min(most, self.behind(clock_ns))
        self._clock_ns = clock_ns

    def use(self, clock_ns: int, used_ns: int, *, owing: bool) -> None:
        """Account for time in which it used the GPU; `owing`: others who waited were behind."""
        unused = self.behind(clock_ns)
        most = -_MEMORY_NS * MICROS if owing else min(-self._slack, unused)
        self._behind = max(most, unused - used_ns * MICROS)
        self._clock_ns = clock_ns

    def add(self, used_ns: int) -> None:
        """Account afterwards for a use that was taken for none."""
        self._behind = max(-_MEMORY_NS * MICROS, self._behind - used_ns * MICROS)


class Allowance:
    """How long a member may still run before it is above its limit.

    All in integers. Credit grows by `limit` micros each ns, and shrinks by a whole
    GPU each ns that is used. What is not used while waiting is kept, up to a cap,
    and what is overrun is owed. A member whose credit is spent stays *held back*
    until there is enough for one grant, so it does not run in slivers.

    Args:
        limit: micros, less than a whole GPU.
        quota_ns: the longest grant.
        now: ns.
    """

    __slots__ = ("_at_ns", "_cap", "_credit", "_enough", "_limit", "held_back")

    def __init__(self, limit: int, quota_ns: int, now: int) -> None:
        self._limit = limit
        self._enough = paced_grant_ns(limit, quota_ns) * (MICROS - limit)
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

    def runs_out_at(self) -> int:
        """When the credit is spent of a member that runs since the last `advance`, in ns."""
        return self._at_ns + self.runs_out_after()

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
