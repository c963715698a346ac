"""Exact accounts of a member's request and limit.

A decayed average swings around its mean by half a grant. A member that is served whenever its
average crosses a bound gets more or less than the bound, and the rarer its grants, the larger
the error. Requests and limits are therefore kept as integrals, which have no such error.
"""

from typing import Final

from kubeshare.core.units import MICROS

SHORTEST_GRANT_NS: Final = 5_000_000
"""A shorter grant would cost more in its handover than it gives."""

PROMPT_COST_NS: Final = SHORTEST_GRANT_NS
"""What a prompt member pays of its request for the end of another's lease: about what the GPU
loses by the additional handover, and by the pause after which a library reports that it is idle."""

PACE_NS: Final = 1_000_000_000
"""A member that gets exactly its request or limit is served about once in this time, in grants
that are as long as its share requires."""

_MEMORY_NS: Final = 60_000_000_000
"""A waiting member is owed its request of this time at most: four times the longest kernel."""

DEBT_MAX: Final = _MEMORY_NS * MICROS
"""The most that a bypassed member owes beyond one grant, in millionths of a ns."""


def paced_grant_ns(share_micros: int, quota_ns: int) -> int:
    """The length of a grant, one in each ``PACE_NS``, that amounts to this share."""
    return min(quota_ns, max(SHORTEST_GRANT_NS, PACE_NS * share_micros // MICROS))


class Guarantee:
    """How far a member is behind its request.

    It falls behind by its request each ns, and catches up by each ns that it uses. Time lost
    between two holders does not count: all members bear the cost of handovers in proportion,
    and it does not add up.

    - A member that does not want the GPU saves up one grant at most. What it is owed beyond
      that it loses as fast as it could have used it, so a pause between two grants costs little.
    - Use beyond the request counts for one grant and what waiting members are owed: the rest
      was taken from no one. So a debt is as long as the kernel that made it.

    Args:
        request: micros.
        quota_ns: its longest grant.
        clock_ns: the GPU's time, without what handovers lost.
    """

    __slots__ = ("_behind", "_clock_ns", "_request", "_slack")

    def __init__(self, request: int, quota_ns: int, clock_ns: int) -> None:
        self._behind = 0  # ns of the whole GPU, in millionths
        self._clock_ns = clock_ns
        self._request = request
        self._slack = paced_grant_ns(request, quota_ns) * MICROS

    def change(self, request: int, quota_ns: int) -> None:
        """Change the request from the last account on."""
        self._request = request
        self._slack = paced_grant_ns(request, quota_ns) * MICROS

    @property
    def was_behind(self) -> bool:
        """Whether it was behind when it was last accounted for."""
        return self._behind > 0

    def behind(self, clock_ns: int, used_ns: int = 0) -> int:
        """How far it is behind, in millionths of a ns, having used ``used_ns`` more."""
        return self._behind + (clock_ns - self._clock_ns) * self._request - used_ns * MICROS

    def wait(self, clock_ns: int, *, wanting: bool) -> None:
        """Account for time in which it did not use the GPU; ``wanting``: it waited for it."""
        if wanting:
            most = _MEMORY_NS * self._request
        else:
            most = max(self._slack, self._behind - (clock_ns - self._clock_ns) * MICROS)
        self._behind = min(most, self.behind(clock_ns))
        self._clock_ns = clock_ns

    def use(self, clock_ns: int, used_ns: int, owed: int) -> None:
        """Account for time in which it used the GPU; ``owed``: how far others are behind."""
        unused = self.behind(clock_ns)
        most = min(-self._slack - owed, unused)
        self._behind = max(most, unused - used_ns * MICROS)
        self._clock_ns = clock_ns

    def bound(self, credit: int) -> None:
        """Be owed what its limit lets it use at most, or one grant: the rest it kept from itself.

        Others would owe it that, or wait for it, though they took nothing from it.
        """
        self._behind = min(self._behind, max(self._slack, credit))

    def repay(self, credit: int) -> None:
        """Pay back what it owes, in millionths of a ns, or a part of that."""
        self._behind = max(self._behind, min(0, self._behind + credit))

    def pay(self, cost_ns: int) -> None:
        """Pay for something with so much of its time."""
        self._behind -= cost_ns * MICROS

    def forgive(self) -> None:
        """Forget use beyond the request."""
        self._behind = max(0, self._behind)


class Allowance:
    """How long a member may still run before it exceeds its limit.

    All in integers. Credit grows by ``limit`` micros each ns, and shrinks by a whole GPU each ns
    of use. Unused credit is kept up to a cap, or as long as the member is behind its request: it
    may catch up with what others kept it from. An overrun is owed. A member whose credit is spent
    stays *held back* until it has enough for one grant, so it does not run in slivers.

    The limit may change: in any time a member uses no more than the integral of its limit and
    the credit that it had. While it has no limit its use costs nothing, and pays back what it
    owes; nothing can run out then.

    Args:
        limit: micros, less than a whole GPU.
        quota_ns: the longest grant.
        now: ns.
    """

    __slots__ = (
        "_at_ns",
        "_cap",
        "_credit",
        "_enough",
        "_limit",
        "_most",
        "_overtime",
        "_quota_ns",
        "held_back",
    )

    def __init__(self, limit: int, quota_ns: int, now: int) -> None:
        self._limit = limit
        self.set_quota(quota_ns)
        self._enough = paced_grant_ns(limit, quota_ns) * (MICROS - limit)
        self._most = self._cap
        self._credit = self._enough
        self._overtime = 0
        self._at_ns = now
        self.held_back = limit == 0

    def set_quota(self, quota_ns: int) -> None:
        """Set the longest grant, for the next change of the limit and all that follows."""
        self._quota_ns = quota_ns
        self._cap = 2 * quota_ns * MICROS

    def advance(self, now: int, *, using: bool, bypassed: bool = False, behind: int = 0) -> None:
        """Account for the time up to `now`; times before the last one change nothing.

        What a bypassed member used is not known, so of that it owes no more than its limit pays
        back in a minute.

        Args:
            now: ns.
            using: whether it used the GPU.
            bypassed: whether that is only presumed.
            behind: how far it is behind its request by then, in millionths of a ns.
        """
        self._most = max(self._cap, behind)
        elapsed = max(0, now - self._at_ns)
        least = min(self._credit, -_MEMORY_NS * self._limit) if bypassed else None
        self._at_ns = max(now, self._at_ns)
        if not using:
            self._add(elapsed * self._limit)
        elif self._limit < MICROS:
            change = elapsed * (self._limit - MICROS)
            self._add(change if least is None else max(change, least - self._credit))
        else:
            self._add(min(elapsed * MICROS, max(0, -self._credit)))

    def change(self, limit: int, now: int, *, using: bool) -> None:
        """Change the limit from `now` on; a whole GPU is none.

        Of what it saved under a higher limit it keeps enough for one grant, so it is held to a
        lower one after a quota at the latest.
        """
        self.advance(now, using=using)
        is_lower = limit < self._limit
        self._limit = limit
        self._enough = paced_grant_ns(limit, self._quota_ns) * (MICROS - limit)
        if is_lower:
            self._credit = min(self._credit, self._enough)
        if limit == 0:
            self.held_back = True
        self._add(0)

    def run_over(self, now: int, counted_ns: int) -> None:
        """Account for the time up to `now`, of which a use of `counted_ns` counts later.

        Until then the credit grows as if there were no use.
        """
        before = self._credit
        self._add(max(0, now - self._at_ns) * self._limit)
        self._at_ns = max(now, self._at_ns)
        self._overtime += self._credit - before + counted_ns * (MICROS - self._limit)

    def count_overtime(self) -> None:
        """Count what was to count later."""
        self._add(-self._overtime)
        self._overtime = 0

    @property
    def credit(self) -> int:
        """What is left of it, in millionths of a ns."""
        return self._credit

    def runs_out_after(self) -> int:
        """How many ns it may run from the last account on until the credit is spent."""
        return max(0, -(-self._credit // (MICROS - self._limit)))

    def runs_out_at(self) -> int:
        """When the credit of a member that runs since the last account is spent, in ns."""
        return self._at_ns + self.runs_out_after()

    def ready_at(self) -> int | None:
        """When a held-back member may run again, in ns; None for never."""
        if self._limit == 0:
            return None
        return self._at_ns + max(0, -(-(self._enough - self._credit) // self._limit))

    def _add(self, credit: int) -> None:
        self._credit = min(self._most, self._credit + credit)
        if self._credit <= 0:
            self.held_back = True
        elif self._credit >= self._enough and self._limit > 0:
            self.held_back = False
