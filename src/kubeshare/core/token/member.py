"""One member of an arbiter: a session, with its shares of GPUs."""

import enum
from typing import Final

import msgspec

from kubeshare.core.token.share import BEHIND, OVERDUE, MemberShare, Precedence

_LONG_WAIT_NS = 500_000_000
"""A member below its request that waited this long is served first."""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """What a member holds and used of one GPU, for display.

    Attributes:
        share: its usage by the arbiter's measure, 0 to 1.
        recent_share: its usage in the last 10 s, 0 to 1.
        charged_ns, grants, drains, drain_ns, overruns, bypasses, waits: see
            :class:`kubeshare.core.token.share.Tally`.
        waited_ns: total time that it waited, including a wait that goes on.
        longest_wait_ns: the longest wait that ended.
        state: ``open``, ``closing``, ``waiting``, ``held back`` (waiting at its limit),
            ``hung`` or ``idle``.
    """

    name: str
    gpu: str
    request_micros: int
    limit_micros: int
    share: float
    recent_share: float
    charged_ns: int
    grants: int
    drains: int
    drain_ns: int
    overruns: int
    bypasses: int
    waits: int
    waited_ns: int
    longest_wait_ns: int
    state: str


class Phase(enum.Enum):
    """The state of the gates that the member holds."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()


# Names of the module: an attribute of an enumeration takes ten times as long to look up.
CLOSED: Final = Phase.CLOSED
OPEN: Final = Phase.OPEN
CLOSING: Final = Phase.CLOSING


class Member:
    """One member and what it holds and waits for.

    Args:
        name: unique.
        quota_ns: its longest grant.

    Attributes:
        shares: GPU → share, in the order of the GPUs' UUIDs.
        held: the shares whose gates are not closed, in the same order.
        wanted: the shares that it waits for, all together; empty when it does not wait, hence
            also while it is OPEN.
        until_ns: when OPEN the end of the lease, when CLOSING the deadline of the drain.
        watched: whether it has been asked to report when it is idle.
        reopened: how often its drain took too long in this grant.
        draining_ns: when it first began to drain in this grant.
        busy_ns: when it last reported that a drain goes on; None if it has not in this grant.
        is_new: whether it has never been served.
    """

    __slots__ = (
        "busy_ns",
        "draining_ns",
        "held",
        "is_new",
        "name",
        "phase",
        "quota_ns",
        "reopened",
        "shares",
        "until_ns",
        "waiting_since_ns",
        "wanted",
        "watched",
    )

    def __init__(self, name: str, quota_ns: int) -> None:
        self.name = name
        self.quota_ns = quota_ns
        self.shares: dict[str, MemberShare] = {}
        self.held: list[MemberShare] = []
        self.wanted: list[MemberShare] = []
        self.phase: Phase = CLOSED
        self.until_ns = 0
        self.waiting_since_ns = 0
        self.watched = False
        self.reopened = 0
        self.draining_ns = 0
        self.busy_ns: int | None = None
        self.is_new = True

    @property
    def is_gang(self) -> bool:
        """Whether it waits for several GPUs."""
        return len(self.wanted) > 1

    @property
    def is_eligible(self) -> bool:
        """Whether it waits and is below all of its limits."""
        for share in self.wanted:
            if share.allowance is not None and share.allowance.held_back:
                return False
        return bool(self.wanted)

    def start_waiting(self, wanted: list[MemberShare], now: int) -> bool:
        """Wait for these shares; returns whether they differ from those wanted before."""
        if wanted == self.wanted:
            return False
        if not self.wanted:
            self.waiting_since_ns = now
        for share in self.shares.values():
            waits = share in wanted
            if waits is not share.waits:
                share.settle(now)
                share.waits = waits
                share.tally.waits += waits
        self.wanted = wanted
        return True

    def stop_waiting(self, now: int) -> None:
        """End the wait: the member is served, or wants nothing any more."""
        waited = now - self.waiting_since_ns
        for share in self.wanted:
            share.settle(now)
            share.waits = False
            share.tally.waited_ns += waited
            share.tally.longest_wait_ns = max(share.tally.longest_wait_ns, waited)
        self.wanted = []

    def ready_at(self) -> int | None:
        """When a waiting member will be below all of its limits, in ns; None for never."""
        ready = [share.allowance.ready_at() for share in self.wanted if share.allowance]
        known = [at for at in ready if at is not None]
        return max(known) if known and len(known) == len(ready) else None

    def rank(self, now: int) -> tuple[Precedence, str]:
        """The smallest rank is served next; of several GPUs the one it used most counts.

        So there is one order of all members, whatever GPUs they want, and no two of them can
        each be first on a GPU that the other needs.
        """
        shares = self.wanted or self.held
        worst = shares[0].precedence(now)
        if len(shares) > 1:
            worst = max(share.precedence(now) for share in shares)
        if self.wanted:
            is_late = worst[0] == BEHIND and now - self.waiting_since_ns >= _LONG_WAIT_NS
            if is_late or self.is_new:
                worst = (OVERDUE, self.waiting_since_ns)
        return worst, self.name

    def view(self, share: MemberShare, now: int) -> MemberView:
        """What it holds and used so far of one GPU."""
        tally = share.tally
        used, recently_used = share.usage_now(now)
        return MemberView(
            name=self.name,
            gpu=share.token.gpu,
            request_micros=share.spec.request_micros,
            limit_micros=share.spec.limit_micros,
            share=used,
            recent_share=recently_used,
            charged_ns=tally.charged_ns + (now - share.since_ns if share.is_held else 0),
            grants=tally.grants,
            drains=tally.drains,
            drain_ns=tally.drain_ns,
            overruns=tally.overruns,
            bypasses=tally.bypasses,
            waits=tally.waits,
            waited_ns=tally.waited_ns + (now - self.waiting_since_ns if share.waits else 0),
            longest_wait_ns=tally.longest_wait_ns,
            state=self._state(share),
        )

    def _state(self, share: MemberShare) -> str:
        if share.is_held:
            return self.phase.name.lower()
        if share.bypassed_ns is not None:
            return "hung"
        if not share.waits:
            return "idle"
        return "held back" if share.held_back else "waiting"
