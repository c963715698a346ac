"""One member of an arbiter: a claim, with its parts of one or several GPUs."""

import enum
from typing import Final

import msgspec

from kubeshare.core.token.share import BEHIND, OVERDUE, MemberShare, Precedence

_PATIENCE_NS = 500_000_000
"""Who is behind and waited for so long goes first."""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """What a member holds and got of one GPU, for people.

    Attributes:
        request_micros: micros.
        limit_micros: micros.
        share: the measure of its use, 0 to 1.
        recent_share: of the last 10 s, 0 to 1.
        charged_ns: GPU time charged since it was added.
        grants: how often its gate was opened.
        drains: how often it closed and the GPU came to be done with it.
        drain_ns: from the closings to the ends of the drains.
        overruns: drains that ended later than the shortest grant lasts.
        bypasses: drains that did not end in time.
        waits: how often it waited for the token.
        waited_ns: how long in all, including a wait that is going on.
        longest_wait_ns: the longest one that ended.
        state: `open`, `closing`, `waiting`, `held back` (waiting at its limit), `hung` or `idle`.
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
    """Of the gates that the member holds."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()


# As names of the module: to ask an enumeration for one of them takes ten times as long.
CLOSED: Final = Phase.CLOSED
OPEN: Final = Phase.OPEN
CLOSING: Final = Phase.CLOSING


class Member:
    """One member's part of the state.

    Args:
        name: unique.
        quota_ns: its longest grant.

    Attributes:
        shares: by GPU, in the order of the GPUs' UUIDs.
        held: those whose gates are not closed, in the same order.
        wanted: those that it waits for, all together; empty when it does not wait, so
            while it is OPEN.
        until_ns: when OPEN the end of the lease, when CLOSING that of the patience.
        watched: whether it has been asked to say when it is idle.
        reopened: how often its drain took too long in this grant.
        draining_ns: since when it drains, the first time in this grant.
        busy_ns: when it last said that a drain goes on; None: it has not in this grant.
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
        """Whether it waits and is at none of its limits."""
        for share in self.wanted:
            if share.allowance is not None and share.allowance.held_back:
                return False
        return bool(self.wanted)

    def start_waiting(self, wanted: list[MemberShare], now: int) -> bool:
        """Note the first want of a wait. Whether another set of GPUs is wanted than before."""
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
        """It is served, or does not want any more."""
        waited = now - self.waiting_since_ns
        for share in self.wanted:
            share.settle(now)
            share.waits = False
            share.tally.waited_ns += waited
            share.tally.longest_wait_ns = max(share.tally.longest_wait_ns, waited)
        self.wanted = []

    def ready_at(self) -> int | None:
        """When a member that waits is at none of its limits any more, in ns; None: never."""
        ready = [share.allowance.ready_at() for share in self.wanted if share.allowance]
        known = [at for at in ready if at is not None]
        return max(known) if known and len(known) == len(ready) else None

    def rank(self, now: int) -> tuple[Precedence, str]:
        """The smallest rank is served next; of several GPUs that on which it has most counts.

        So there is one order of all members, whatever GPUs they want, and no two
        of them can each be first on a GPU that the other needs.
        """
        shares = self.wanted or self.held
        worst = shares[0].precedence(now)
        if len(shares) > 1:
            worst = max(share.precedence(now) for share in shares)
        if self.wanted:
            is_late = worst[0] == BEHIND and now - self.waiting_since_ns >= _PATIENCE_NS
            if is_late or self.is_new:
                worst = (OVERDUE, self.waiting_since_ns)
        return worst, self.name

    def view(self, share: MemberShare, now: int) -> MemberView:
        """What it holds and got so far of one GPU."""
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
