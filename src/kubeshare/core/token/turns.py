"""Turns: which member is served next, and for how long.

The choice is that of the KubeShare paper (HPDC '20, section 4.5): drop members at their limit;
of the rest take the one furthest below its request; if all have their request, the one that used
least. Two kinds of members go first: those never served, and those below their request that
waited long. Before all others goes a latency-sensitive member within its request, and the lease
that it waits for ends early. For members that want several GPUs at once see ``gangs``.

A holder whose drain does not end in time may be stuck: its running work may wait for a launch of
its own that waits at the closed gate. If there is such a launch, the gate is opened once more,
and closed again after a quota. If there is none, or if the second drain does not end in time
either, the holder is bypassed and the next member is served, unless the holder keeps reporting
that its work goes on. Two members that run at once would each be charged for the time of both,
so the others wait for a long kernel, and the member that runs it pays for it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kubeshare.core.token.action import Action, Close, Extend, Open, Shut, Watch
from kubeshare.core.token.entitlement import PROMPT_COST_NS, SHORTEST_GRANT_NS
from kubeshare.core.token.gangs import (
    GangWait,
    book,
    booked_until,
    forget_booking,
    has_booked,
    keeps_waiting,
)
from kubeshare.core.token.gpu_token import GpuToken
from kubeshare.core.token.member import Member
from kubeshare.core.token.share import ASKS_AGAIN_NS, MemberShare, Precedence
from kubeshare.core.token.turn import CLOSING, OPEN, Turn, are_prompt, precedence_of

_DRAIN_TIMEOUT_NS: Final = 200_000_000
"""The least time that a drain may take, and how long a report of being busy counts."""

_LONGEST_DRAIN_NS: Final = 16_000_000_000
"""The most time that a drain may take, however often the holder reports being busy."""

_TOGETHER: Final = 16
"""Where a lease ends, those end with it of which no more than such a part is left."""


class Turns:
    """Serves members one after another.

    Args:
        members: by name; the caller adds and removes them.
        tokens: by GPU, with the shares of those members.

    Attributes:
        deadline: when ``decide`` has something to do if nothing happens before, in ns; None for
            never.
    """

    def __init__(self, members: Mapping[str, Member], tokens: Mapping[str, GpuToken]) -> None:
        self._members = members
        self._tokens = tokens
        self._gangs: dict[str, Member] = {}
        self._returning: dict[str, Turn] = {}
        self.deadline: int | None = None

    def wait(self, member: Member, now: int, actions: list[Action]) -> list[Action]:
        """Serve a member that wants other GPUs than before, or wants some again."""
        # The member may have been a gang that booked GPUs which others want.
        had_gangs = bool(self._gangs)
        self.note(member)
        interrupts = self._interrupt(member, now)
        is_free = any(share.token.held is None for share in member.wanted)
        if had_gangs or self._gangs or is_free or interrupts:
            return self.decide(now, actions)
        return actions  # the end of the turn that it waits for decides again

    def note(self, member: Member) -> None:
        """Note whether a member that wants other GPUs than before is a gang."""
        self._returning.pop(member.name, None)
        if len(member.wanted) > 1:
            self._gangs[member.name] = member
        else:
            self._gangs.pop(member.name, None)

    def decide(self, now: int, actions: list[Action]) -> list[Action]:
        """Do what is due at ``now``; returns ``actions`` with more appended."""
        due = self._due(now) if self.deadline is not None and now >= self.deadline else []
        for turn in due:
            if turn.phase is CLOSING:
                self._end_of_drain_timeout(turn, now, actions)
        self._assign_whole_gpus(now, actions)
        if self._returning:
            self._returning = {
                name: turn
                for name, turn in self._returning.items()
                if now < turn.until_ns or any(share.turn is turn for share in turn.granted)
            }
        if self._gangs:
            book(self._gangs, self._members, self._expected_back(now), now)
        for turn in due:
            if turn.phase is OPEN and now >= turn.until_ns:
                self._end_of_lease(turn, now, actions)
        if due and not self._gangs and not self._returning:
            self._end_together(now, actions)
        self._assign(now, actions)
        self.deadline = self._next_deadline()
        return actions

    def watch(self, turn: Turn, actions: list[Action]) -> None:
        """Ask a holder, once in each turn, to report when it is idle."""
        if turn.phase is not OPEN or turn.watched:
            return
        turn.watched = True
        for share in turn.held:
            share.idle_ns = None
            actions.append(Watch(turn.member, share.token.gpu))

    def shorten(self, turn: Turn) -> None:
        """End a lease where a limit runs out that binds since the holder is no longer alone.

        Else each neighbour that comes would give the holder the rest of a lease without a limit.
        """
        if turn.phase is not OPEN:
            return
        for share in turn.held:
            if share.has_limit_alone and share.allowance is not None:
                turn.until_ns = min(turn.until_ns, share.allowance.runs_out_at())
        self.deadline = self._next_deadline()

    def _interrupt(self, member: Member, now: int) -> bool:
        """End the lease that a prompt member waits for; returns whether one ends earlier.

        Its holder keeps the shortest grant. A holder that is prompt itself keeps its lease, and so
        do members with several GPUs, those that a gang waits for, and work that is stuck.
        """
        turn = member.wanted[0].token.turn
        if turn is None or member.is_gang or not turn.is_open or turn.reopened:
            return False
        (share, *_), (holder, *others) = member.wanted, turn.held
        until_ns = max(now, holder.since_ns + SHORTEST_GRANT_NS)
        if others or share.token.booked is not None or until_ns >= turn.until_ns:
            return False
        if not share.is_prompt(now, PROMPT_COST_NS) or turn.is_prompt(now):
            return False
        share.pay_for_promptness()
        turn.until_ns = until_ns
        self.deadline = self._next_deadline()
        return True

    def close(self, turn: Turn, now: int, actions: list[Action]) -> None:
        """Take the tokens back: no launch passes, and what was launched drains."""
        if not turn.reopened:
            turn.draining_ns = now
        turn.phase = CLOSING
        turn.until_ns = _drain_deadline_ns(self._members[turn.member], turn, now)
        for share in turn.held:
            share.closed_ns = now
            actions.append(Close(turn.member, share.token.gpu))

    def shut(self, share: MemberShare, idle_ns: int, now: int) -> Shut:
        """End the use of one GPU that finished its holder's work."""
        turn = share.turn
        if turn is not None:
            turn.held = [other for other in turn.held if other is not share]
            if not turn.held:
                turn.until_ns = now + ASKS_AGAIN_NS
        share.charge(idle_ns, now)
        return Shut(share.member, share.token.gpu)

    def release(self, member: Member, now: int) -> list[Action]:
        """Shut the gates of a member, which wants no GPU any more."""
        member.stop_waiting(member.wanted, now)
        self.note(member)
        forget_booking(member)
        held = [share for turn in member.turns() for share in turn.held]
        actions: list[Action] = [self.abandon(share, now) for share in held]
        for share in member.shares.values():
            share.leave_unreported(now)
        return actions

    def abandon(self, share: MemberShare, now: int) -> Shut:
        """End the use of one GPU of whose end no process is left to report."""
        shut = self.shut(share, now, now)
        share.owes_report = True
        share.bypasses += 1
        share.leave_unreported(now)
        return shut

    def _next_deadline(self) -> int | None:
        earliest: int | None = None
        for turn in self._returning.values():
            earliest = _earlier(earliest, turn.until_ns)
        for token in self._tokens.values():
            if token.turn is not None:
                earliest = _earlier(earliest, token.turn.until_ns)
            elif token.booked is not None:
                earliest = _earlier(earliest, token.lent_ns + SHORTEST_GRANT_NS)
            else:
                for share in token.shares.values():
                    if share.waits:
                        earliest = _earlier(earliest, self._ready_at(share))
        return earliest

    def _ready_at(self, share: MemberShare) -> int | None:
        """When a member that only its limits hold back may be served, in ns; None if others do."""
        member = self._members[share.member]
        if member.is_eligible or any(other.token.held for other in member.wanted):
            return None
        return member.ready_at()

    def _due(self, now: int) -> list[Turn]:
        """The turns whose lease or drain timeout has ended."""
        due: list[Turn] = []
        for token in self._tokens.values():
            turn = token.turn
            if turn is not None and now >= turn.until_ns and turn not in due:
                due.append(turn)
        return due

    def _assign_whole_gpus(self, now: int, actions: list[Action]) -> None:
        """Give each GPU that only one member may use, without a limit, to it by itself.

        Nobody else waits for such a GPU, so it needs no place in the order of those that wait,
        and whoever holds it cannot be part of a cycle.
        """
        for token in self._tokens.values():
            if token.held is None and len(token.shares) == 1:
                (share,) = token.shares.values()
                if share.waits and share.has_whole_gpu:
                    self._open(self._members[share.member], [share], now, None, actions)

    def _assign(self, now: int, actions: list[Action]) -> None:
        """Give free GPUs to the members that wait for them, in their order."""
        free = [token for token in self._tokens.values() if token.held is None]
        if self._gangs or self._returning:
            self._assign_in_order(free, now, actions)
            return
        for token in free:
            ready = self._ready(token, now)
            if ready:
                first = _first(ready, now)
                self._open(first, first.wanted, now, None, actions)

    def _ready(self, token: GpuToken, now: int) -> list[Member]:
        """The members that wait for this GPU, below their limits, and have nothing to drain.

        A member that changes from some GPUs to others has to drain those first.
        """
        ready = []
        for share in token.shares.values():
            if share.waits:
                share.refresh(now)
                member = self._members[share.member]
                has_others = len(member.shares) > 1  # this GPU is free
                if member.is_eligible and not (has_others and member.is_draining):
                    ready.append(member)
        return ready

    def _assign_in_order(self, free: list[GpuToken], now: int, actions: list[Action]) -> None:
        ready = {member.name: member for token in free for member in self._ready(token, now)}
        returning = self._expected_back(now)
        waiting = [gang for gang in self._gangs.values() if gang.is_eligible]
        waits = [*returning, *((gang.wanted, gang.place(now)) for gang in waiting)]
        in_order = sorted(ready.values(), key=lambda m: (not has_booked(m), m.place(now)))
        for member in in_order:
            if any(share.token.held is not None for share in member.wanted):
                continue
            if not has_booked(member) and keeps_waiting(
                member, returning if member.is_gang else waits, now
            ):
                continue
            ends = booked_until(member.wanted, member.name, now)
            if ends is None or (not member.is_gang and ends - now >= SHORTEST_GRANT_NS):
                self._open(member, member.wanted, now, ends, actions)

    def _expected_back(self, now: int) -> list[GangWait]:
        """What gangs are about to wait for: their gates have closed, but they were not idle."""
        return [
            (turn.granted, (not are_prompt(turn.granted, now), _rank_of_all(turn, now)))
            for turn in self._returning.values()
        ]

    def _end_of_lease(self, turn: Turn, now: int, actions: list[Action]) -> None:
        """Extend the lease if the holder would be chosen again; else close its gates."""
        if self._is_over(turn, now):
            self.close(turn, now, actions)
            if len(turn.granted) > 1 and not self._members[turn.member].wanted:
                self._returning[turn.member] = turn
            return
        for share in turn.held:
            share.account(now, using=True)
        turn.until_ns = _lease_end(turn, now, booked_until(turn.held, turn.member, now))
        actions += [Extend(turn.member, p.token.gpu, turn.until_ns) for p in turn.held]
        self.watch(turn, actions)

    def _end_together(self, now: int, actions: list[Action]) -> None:
        """Close the gates whose leases are about to end as well, where others are served next.

        A wake-up costs the daemon more than what it decides then, and GPUs whose leases end
        together once do so again. Gangs count on the ends that are announced: none is early while
        one waits, nor that of a gang itself.
        """
        for token in self._tokens.values():
            turn = token.turn
            if turn is not None and _is_about_to_end(turn, now) and self._is_over(turn, now):
                self.close(turn, now, actions)

    def _is_over(self, turn: Turn, now: int) -> bool:
        """Whether another member is served next, or a limit or a gang allows no longer lease."""
        until = booked_until(turn.held, turn.member, now)
        if turn.reopened or (until is not None and until - now < SHORTEST_GRANT_NS):
            return True
        place = turn.place(now)
        return any(
            rival.place(now) <= place for share in turn.held for rival in self._rivals(share, now)
        ) or _has_run_out(turn, now)

    def _rivals(self, share: MemberShare, now: int) -> Iterable[Member]:
        """The members that wait for this GPU alone."""
        for name, other in share.token.shares.items():
            member = self._members[name]
            if other.waits and not member.is_gang:
                other.refresh(now)
                if member.is_eligible:
                    yield member

    def _open(
        self,
        member: Member,
        shares: list[MemberShare],
        now: int,
        until: int | None,
        actions: list[Action],
    ) -> None:
        member.stop_waiting(shares, now)
        if self._gangs.pop(member.name, None) is not None:
            forget_booking(member)
            self.note(member)
        member.is_new = member.is_new and bool(member.wanted)
        turn = Turn(member.name, shares)
        for share in shares:
            share.token.held, share.token.turn = share, turn
            share.idle_ns = None
            share.tally.grants += 1
        turn.until_ns = _lease_end(turn, now, until)
        actions += [Open(member.name, p.token.gpu, turn.until_ns) for p in shares]
        # A pause of a member alone on its GPU and without a limit costs no one: a job that stalls
        # for some milliseconds each step keeps its gate open.
        if not turn.is_whole:
            self.watch(turn, actions)

    def _end_of_drain_timeout(self, turn: Turn, now: int, actions: list[Action]) -> None:
        """The drain took too long: reopen the gates once, then bypass the holder.

        Its work may also wait for a launch on a GPU that it does not hold any more, and that
        others may hold until it gives this one: then it is bypassed, and gets both later.
        """
        member = self._members[turn.member]
        is_busy = _is_busy(turn, now)
        if is_busy and not member.wanted:
            turn.until_ns = _drain_deadline_ns(member, turn, now)
            return
        waits_elsewhere = any(share.turn is not turn for share in member.wanted)
        is_stuck = not is_busy and (turn.reopened > 0 or not member.wanted)
        if waits_elsewhere or is_stuck:
            for share in turn.held:
                share.bypass(now, waits_elsewhere=waits_elsewhere)
                share.tally.bypasses += 1
                actions.append(Shut(turn.member, share.token.gpu, bypassed=True))
            return
        member.stop_waiting(member.wanted, now)
        self.note(member)
        forget_booking(member)
        turn.reopened += 1
        turn.phase = OPEN
        turn.until_ns = now + member.quota_ns
        actions += [
            Open(turn.member, share.token.gpu, turn.until_ns, again=True) for share in turn.held
        ]


def _earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two times; None stands for never."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _first(ready: list[Member], now: int) -> Member:
    """The one of these whose place is before those of the others."""
    first = ready[0]
    if len(ready) > 1:
        place = first.place(now)
        for member in ready[1:]:
            other = member.place(now)
            if other < place:
                first, place = member, other
    return first


def _is_about_to_end(turn: Turn, now: int) -> bool:
    """Whether at most a part of a lease is left, and the shortest grant is over."""
    if turn.phase is not OPEN or turn.reopened or len(turn.granted) > 1:
        return False
    since_ns = turn.held[0].since_ns
    left_ns, granted_ns = turn.until_ns - now, turn.until_ns - since_ns
    return left_ns * _TOGETHER <= granted_ns and now - since_ns >= SHORTEST_GRANT_NS


def _lease_end(turn: Turn, now: int, until: int | None) -> int:
    grant_ns = min([share.grant_ns(share.contending(now)) for share in turn.held])
    return now + grant_ns if until is None else min(now + grant_ns, until)


def _drain_deadline_ns(member: Member, turn: Turn, now: int) -> int:
    """When the drain has taken too long: later each time, but not after the longest drain.

    What passed the reopened gate may itself be long work.
    """
    timeout_ns = max(2 * member.quota_ns, _DRAIN_TIMEOUT_NS)
    latest = turn.draining_ns + _LONGEST_DRAIN_NS
    return min(now + (timeout_ns << turn.reopened), max(latest, now + timeout_ns))


def _is_busy(turn: Turn, now: int) -> bool:
    """Whether the holder recently reported that its drain goes on, within the longest drain.

    A report counts for nothing as long as somebody owes the end of an earlier drain, or if others
    miss too much by it.
    """
    if any(share.owes_report and not share.reporter_left for share in turn.held):
        return False
    if any(share.outstays(now) for share in turn.held):
        return False
    recently = turn.busy_ns is not None and now - turn.busy_ns < _DRAIN_TIMEOUT_NS
    return recently and now - turn.draining_ns < _LONGEST_DRAIN_NS


def _rank_of_all(turn: Turn, now: int) -> tuple[Precedence, str]:
    """The rank at which the member would be served again with all that it has had."""
    return precedence_of(turn.granted, now), turn.member


def _has_run_out(turn: Turn, now: int) -> bool:
    return any(share.has_run_out(now) for share in turn.held)
