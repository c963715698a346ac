"""The arbiter of a machine's GPUs: events in, actions out.

This module handles what an event means for its member; ``turns`` decides who is served next, and
for how long.

A holder is charged from the grant, or its last extension, until the GPU finished the holder's
work, as the holder reports it. A report counts only within the grant: not before it began, not
after now, and not long ago, since a holder that reports late held the GPU until then. A holder
that was asked to report idleness and did not cannot have been idle for long. A holder that does
not report is bypassed in the end, and charged until it reports, is served again or has no process
left.
"""

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from kubeshare.core.token.action import Action
from kubeshare.core.token.entitlement import SHORTEST_GRANT_NS
from kubeshare.core.token.gangs import forget_booking
from kubeshare.core.token.gpu_token import GpuToken
from kubeshare.core.token.member import Member, MemberView
from kubeshare.core.token.share import MemberShare
from kubeshare.core.token.share_spec import ShareSpec
from kubeshare.core.token.tally import Tally
from kubeshare.core.token.turn import CLOSING, OPEN, Turn
from kubeshare.core.token.turns import Turns
from kubeshare.core.token.usage import DECAYED_AVERAGE, Measure
from kubeshare.core.token.waits import Waits

QUOTA_NS: Final = 100_000_000
"""The longest grant, where neither the daemon nor the grant says otherwise."""

Amounts: TypeAlias = tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, bool]
"""Request and limit of a share, its limit while it is the only one of its GPU, in micros, which is
the limit where it is left out or smaller; and whether it is latency-sensitive."""

_IDLE_TOGETHER_NS: Final = 10_000_000
_LATE_IDLE_REPORT_NS: Final = 20_000_000
_IDLE_REPORT_NS: Final = 5_000_000
_REPORT_DELAY_NS: Final = 10_000_000


class UnknownMemberError(LookupError):
    """An event names a member, or a GPU of one, that was never added or has been removed."""


class Arbiter:
    """Hands the tokens of GPUs from member to member.

    Args:
        quota_ns: the longest grant of members that have no quota of their own.
        measure: how use is measured.

    Attributes:
        waits: of all members, since the arbiter was made.

    Methods that take an event take ``now``, ns on a monotonic clock, and return the actions to
    carry out, in order. GPUs are named by UUID.
    """

    def __init__(self, quota_ns: int = QUOTA_NS, measure: Measure = DECAYED_AVERAGE) -> None:
        self.quota_ns = quota_ns
        self.waits = Waits()
        self._measure = measure
        self._members: dict[str, Member] = {}
        self._tokens: dict[str, GpuToken] = {}
        self._turns = Turns(self._members, self._tokens)

    def holder(self, gpu: str) -> str | None:
        """The member whose gate on this GPU is open or closing."""
        held = self._tokens[gpu].held if gpu in self._tokens else None
        return held.member if held else None

    def deadline(self) -> int | None:
        """When ``tick`` has something to do if no event comes before; None for never."""
        return self._turns.deadline

    def add(
        self,
        name: str,
        shares: Mapping[str, Amounts],
        now: int,
        *,
        quota_ns: int | None = None,
        tallies: Mapping[str, Tally] | None = None,
    ) -> list[Action]:
        """Add a member.

        Args:
            name: of the member.
            shares: GPU → amounts.
            now: ns.
            quota_ns: its own, instead of the arbiter's.
            tallies: GPU → earlier counters of the member, which are continued.

        Raises:
            ValueError: there is a member of this name.
        """
        if name in self._members:
            raise ValueError(f"there is a member {name} already")
        member = self._members[name] = Member(name, quota_ns or self.quota_ns, self.waits)
        actions: list[Action] = []
        for gpu, amounts in sorted(shares.items()):
            token = self._tokens.setdefault(gpu, GpuToken(gpu))
            share = MemberShare(name, token, _spec(amounts, member), self._measure, now)
            if tallies is not None and gpu in tallies:
                share.tally = tallies[gpu]
            member.shares[gpu] = share
            token.add(share, now)
            if token.turn is not None:
                self._turns.watch(token.turn, actions)
                self._turns.shorten(token.turn)
        return actions

    def change(
        self,
        name: str,
        shares: Mapping[str, Amounts],
        now: int,
        *,
        quota_ns: int | None = None,
    ) -> list[Action]:
        """Change requests and limits of a member; the rest of its state stays.

        Raises:
            ValueError: it has no share of one of these GPUs.
        """
        member = self._member(name)
        if not shares.keys() <= member.shares.keys():
            raise ValueError(f"{name} has shares of other GPUs")
        member.quota_ns = quota_ns or self.quota_ns
        for gpu, amounts in shares.items():
            member.shares[gpu].change(_spec(amounts, member), now)
        return self._turns.decide(now, [])

    def remove(self, name: str, now: int) -> list[Action]:
        """Remove a member; its gates are shut and the tokens pass on."""
        member = self._member(name)
        actions = self._turns.release(member, now)
        for gpu, share in member.shares.items():
            share.token.remove(name, now)
            if not share.token.shares:
                del self._tokens[gpu]
        del self._members[name]
        return self._turns.decide(now, actions)

    def want(self, name: str, now: int, gpus: Collection[str] | None = None) -> list[Action]:
        """A launch of the member waits at a closed gate.

        Args:
            name: of the member.
            now: ns.
            gpus: those that it wants; None for all of its GPUs. Those that others may use too,
                or where a limit binds, it gets together, each other by itself.
        """
        member = self._member(name)
        wanted = [share for gpu, share in member.shares.items() if gpus is None or gpu in gpus]
        actions: list[Action] = []
        missing = [share for share in wanted if not share.is_open]
        if not missing:
            return actions
        given_up: list[Turn] = []
        if len(member.shares) > 1 and not all(share.has_whole_gpu for share in missing):
            missing = [share for share in wanted if share in missing or not share.has_whole_gpu]
            given_up = [turn for turn in member.turns() if turn.is_open and not turn.is_whole]
        if not member.start_waiting(missing, now):
            return actions
        forget_booking(member)
        if not given_up:
            return self._turns.wait(member, now, actions)
        for turn in given_up:
            self._turns.close(turn, now, actions)
        self._turns.note(member)
        return self._turns.decide(now, actions)

    def idle(self, name: str, gpu: str, now: int) -> list[Action]:
        """A watched holder has nothing queued on a GPU: take the token back without a charge.

        Its gate closes as at the end of any grant, so a launch in the same instant is drained
        and charged, and the next launch asks again. A holder of several GPUs has to be idle on
        all of them at about the same time.
        """
        share = self._member(name).shares[gpu]
        turn = share.turn
        actions: list[Action] = []
        if turn is not None and turn.phase is OPEN:
            share.idle_ns = now
            since = [held.idle_ns for held in turn.held]
            if all(at is not None and now - at <= _IDLE_TOGETHER_NS for at in since):
                self._turns.close(turn, now, actions)
            elif None not in since:
                turn.watched = False
                self._turns.watch(turn, actions)
        return self._turns.decide(now, actions)

    def drained(self, name: str, gpu: str, idle_ns: int, now: int) -> list[Action]:
        """The GPU finished the member's work at ``idle_ns``."""
        share = self._member(name).shares[gpu]
        turn = share.turn
        actions: list[Action] = []
        if turn is not None and turn.phase is CLOSING:
            if turn.watched:
                idle_ns = max(idle_ns, share.closed_ns - _believed_idle_ns(share))
            if max(idle_ns, share.closed_ns) < now - _REPORT_DELAY_NS:
                idle_ns = now - _REPORT_DELAY_NS
            idle_ns = share.believe_pause(idle_ns, now)
            drain_ns = max(0, min(idle_ns, now) - share.closed_ns)
            share.reported()
            share.last_drain_ns = now - share.closed_ns
            share.tally.drains += 1
            share.tally.drain_ns += drain_ns
            share.tally.overruns += drain_ns > SHORTEST_GRANT_NS
            actions.append(self._turns.shut(share, idle_ns, now))
        elif turn is not None:
            share.caught_up()
        else:
            share.end_bypass(max(idle_ns, now - _LATE_IDLE_REPORT_NS), now)
        return self._turns.decide(now, actions)

    def busy(self, name: str, gpu: str, now: int) -> list[Action]:
        """A draining member is alive, and the GPU still has work of its."""
        turn = self._member(name).shares[gpu].turn
        if turn is not None and turn.phase is CLOSING:
            turn.busy_ns = now
        return self._turns.decide(now, [])

    def left(self, name: str, gpu: str, now: int) -> list[Action]:
        """The processes that had yet to report the end of their work on a GPU have disconnected.

        The token passes on at once, because a process that ended has no work there. One that only
        closed its connection may have: what it owes its member owes.
        """
        share = self._member(name).shares[gpu]
        actions: list[Action] = []
        if share.turn is not None and share.turn.phase is CLOSING:
            actions.append(self._turns.abandon(share, now))
        else:
            share.leave_unreported(now)
        return self._turns.decide(now, actions)

    def gone(self, name: str, now: int) -> list[Action]:
        """No process of the member is left; as with `left`, on all of its GPUs."""
        return self._turns.decide(now, self._turns.release(self._member(name), now))

    def connected(self, name: str, now: int) -> list[Action]:
        """A process of the member has connected, and reports what those owe that left."""
        for share in self._member(name).shares.values():
            if share.reporter_left:
                share.return_to_report(now)
        return self._turns.decide(now, [])

    def tick(self, now: int) -> list[Action]:
        """Time has passed."""
        return self._turns.decide(now, [])

    def settle(self, now: int) -> None:
        """Charge the turns that go on for the time up to now."""
        for token in self._tokens.values():
            if token.held is not None:
                token.held.account(now, using=True)

    def tally(self, name: str, gpu: str) -> Tally:
        """The counters of a member's share, up to its last account."""
        share = self._member(name).shares.get(gpu)
        if share is None:
            raise UnknownMemberError(f"member {name} has no share of {gpu} here")
        return share.tally

    def views(self, now: int) -> list[MemberView]:
        """What all members hold and used, in the order in which they joined."""
        return [
            member.view(share, now)
            for member in self._members.values()
            for share in member.shares.values()
        ]

    def _member(self, name: str) -> Member:
        try:
            return self._members[name]
        except KeyError:
            raise UnknownMemberError(f"no member {name} here") from None


def _believed_idle_ns(share: MemberShare) -> int:
    """How long before its gate closed a watched holder may have been idle.

    A part of what it held, or short grants would cost it nothing; and the time after which a
    library reports that it is idle, where it did.
    """
    part_ns = (share.closed_ns - share.since_ns) // 8
    if share.idle_ns is not None:
        part_ns = max(part_ns, _IDLE_REPORT_NS)
    return min(part_ns, _LATE_IDLE_REPORT_NS)


def _spec(amounts: Amounts, member: Member) -> ShareSpec:
    return ShareSpec(
        request_micros=amounts[0],
        limit_micros=amounts[1],
        quota_ns=member.quota_ns,
        limit_alone_micros=amounts[2] if len(amounts) > 2 else 0,
        latency_sensitive=amounts[3] if len(amounts) > 3 else False,
    )
