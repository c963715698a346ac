"""One member of an arbiter: a session, with its shares of GPUs."""

import msgspec

from kubeshare.core.token.share import (
    BEHIND,
    OVERDUE,
    MemberShare,
    Precedence,
)
from kubeshare.core.token.turn import CLOSING, Turn, are_prompt, precedence_of
from kubeshare.core.token.waits import Waits

_LONG_WAIT_NS = 500_000_000
"""A member below its request that waited this long is served first."""

_LONGEST_WAIT_NS = 30_000_000_000
"""So is a bypassed member that waited this long: its work may wait for the launch that waits. When
it is bypassed again it waits twice as long for the next such turn."""

_DOUBLED_MAX = 7
"""So often; then it is served about each hour."""


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
        owes_report: whether a process of it has yet to report the end of work whose turn is over.
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
    owes_report: bool


class Member:
    """One member and what it holds and waits for.

    Args:
        name: unique.
        quota_ns: its longest grant.
        waits: counts its waits that end.

    Attributes:
        shares: GPU → share, in the order of the GPUs' UUIDs.
        wanted: the shares that it waits for, all together, in the same order; empty when it does
            not wait.
        is_new: whether it has never been served.
    """

    __slots__ = ("_waits", "is_new", "name", "quota_ns", "shares", "waiting_since_ns", "wanted")

    def __init__(self, name: str, quota_ns: int, waits: Waits) -> None:
        self._waits = waits
        self.name = name
        self.quota_ns = quota_ns
        self.shares: dict[str, MemberShare] = {}
        self.wanted: list[MemberShare] = []
        self.waiting_since_ns = 0
        self.is_new = True

    def turns(self) -> list[Turn]:
        """Its turns that are not over, each once, in the order of their first GPUs."""
        held = (share.turn for share in self.shares.values())
        return list(dict.fromkeys(turn for turn in held if turn is not None))

    @property
    def is_draining(self) -> bool:
        """Whether it still has to give something back."""
        for share in self.shares.values():
            turn = share.turn
            if turn is not None and turn.phase is CLOSING:
                return True
        return False

    @property
    def is_gang(self) -> bool:
        """Whether it waits for several GPUs."""
        return len(self.wanted) > 1

    @property
    def is_eligible(self) -> bool:
        """Whether it waits, and is below all of its limits or excused."""
        for share in self.wanted:
            if share.allowance is not None and share.allowance.held_back:
                return self.is_excused and self.ready_at() is not None
        return bool(self.wanted)

    @property
    def is_excused(self) -> bool:
        """Whether its work may wait for the launch that waits, on another GPU.

        Until both have begun that work occupies a GPU beside others, so they begin next.
        """
        return self.is_gang and any(share.is_excused for share in self.wanted)

    def refresh(self, now: int) -> None:
        """Bring up to date which of the shares that it waits for are held back or kept out."""
        for share in self.wanted:
            share.refresh(now)
        is_held_back = not self.is_eligible
        for share in self.wanted:
            kept_out = is_held_back and not share.held_back
            if kept_out is not share.kept_out:
                share.settle(now)
                share.kept_out = kept_out

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
                share.waits, share.kept_out = waits, False
                share.tally.waits += waits
        self.wanted = wanted
        return True

    def stop_waiting(self, shares: list[MemberShare], now: int) -> None:
        """End the wait for these shares: the member gets them, or does not want them any more."""
        waited = now - self.waiting_since_ns
        for share in shares:
            share.settle(now)
            share.waits = share.kept_out = False
            share.tally.waited_ns += waited
            share.tally.longest_wait_ns = max(share.tally.longest_wait_ns, waited)
            self._waits.add(waited)
        self.wanted = [share for share in self.wanted if share.waits]

    def ready_at(self) -> int | None:
        """When a waiting member will be below all of its limits, in ns; None for never."""
        ready = [share.allowance.ready_at() for share in self.wanted if share.allowance]
        known = [at for at in ready if at is not None]
        return max(known) if known and len(known) == len(ready) else None

    def rank(self, now: int) -> tuple[Precedence, str]:
        """The smallest is served next; of several GPUs that it waits for the most used counts.

        So there is one order of all members, whatever GPUs they want, and no two of them can
        each be first on a GPU that the other needs.
        """
        worst = precedence_of(self.wanted, now)
        waited_ns = now - self.waiting_since_ns
        is_late = worst[0] == BEHIND and waited_ns >= _LONG_WAIT_NS
        if waited_ns >= _LONGEST_WAIT_NS and not is_late:
            is_late = any(
                waited_ns >= _bypassed_wait_ns(share) for share in self.wanted if share.is_bypassed
            )
        if is_late or self.is_new or self.is_excused:
            worst = (OVERDUE, self.waiting_since_ns)
        return worst, self.name

    def place(self, now: int) -> tuple[bool, tuple[Precedence, str]]:
        """Its place among those that wait for the same free GPU; the smallest is served next."""
        return not are_prompt(self.wanted, now), self.rank(now)

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
            charged_ns=share.charged_now(now),
            grants=tally.grants,
            drains=tally.drains,
            drain_ns=tally.drain_ns,
            overruns=tally.overruns,
            bypasses=tally.bypasses,
            waits=tally.waits,
            waited_ns=tally.waited_ns + (now - self.waiting_since_ns if share.waits else 0),
            longest_wait_ns=tally.longest_wait_ns,
            state=self._state(share),
            owes_report=share.owes_report and not share.reporter_left,
        )

    def _state(self, share: MemberShare) -> str:
        turn = share.turn
        if turn is not None:
            return turn.phase.name.lower()
        if share.is_bypassed:
            return "hung"
        if not share.waits:
            return "idle"
        return "held back" if share.held_back else "waiting"


def _bypassed_wait_ns(share: MemberShare) -> int:
    """How long a bypassed share waits for its next turn at most, if its limit allows one."""
    return _LONGEST_WAIT_NS << min(max(0, share.bypasses - 1), _DOUBLED_MAX)
