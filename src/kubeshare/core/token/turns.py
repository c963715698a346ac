"""Turns: which member is served next, and for how long.

The choice is that of the KubeShare paper (HPDC '20, section 4.5): drop members at their limit;
of the rest take the one furthest below its request; if all have their request, the one that used
least. Two kinds of members go first: those never served, and those below their request that
waited long. For members that want several GPUs at once see ``gangs``.

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
from kubeshare.core.token.entitlement import PACE_NS, SHORTEST_GRANT_NS
from kubeshare.core.token.gangs import book, booked_until, forget_booking, has_booked
from kubeshare.core.token.member import CLOSED, CLOSING, OPEN, Member
from kubeshare.core.token.share import GpuToken, MemberShare

_DRAIN_TIMEOUT_NS: Final = 200_000_000
"""The least time that a drain may take, and how long a report of being busy counts."""

_LONGEST_DRAIN_NS: Final = 10_000_000_000
"""The most time that a drain may take, however often the holder reports being busy."""


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
        self.deadline: int | None = None

    def wait(self, member: Member, now: int, actions: list[Action]) -> list[Action]:
        """Serve a member that wants other GPUs than before, or wants some again."""
        # The member may have been a gang that booked GPUs which others want.
        had_gangs = bool(self._gangs)
        self.note(member)
        if had_gangs or self._gangs or any(share.token.held is None for share in member.wanted):
            return self.decide(now, actions)
        return actions  # the end of the turn that it waits for decides again

    def note(self, member: Member) -> None:
        """Note whether a member that wants other GPUs than before is a gang."""
        if len(member.wanted) > 1:
            self._gangs[member.name] = member
        else:
            self._gangs.pop(member.name, None)

    def decide(self, now: int, actions: list[Action]) -> list[Action]:
        """Do what is due at ``now``; returns ``actions`` with more appended."""
        due = self._due(now) if self.deadline is not None and now >= self.deadline else []
        for holder in due:
            if holder.phase is CLOSING:
                self._end_of_drain_timeout(holder, now, actions)
        if self._gangs:
            book(self._gangs, self._members, now)
        for holder in due:
            if holder.phase is OPEN and now >= holder.until_ns:
                self._end_of_lease(holder, now, actions)
        self._assign(now, actions)
        self.deadline = self._next_deadline()
        return actions

    def watch(self, holder: Member, actions: list[Action]) -> None:
        """Ask a holder, once in each grant, to report when it is idle."""
        if holder.phase is not OPEN or holder.watched:
            return
        holder.watched = True
        for share in holder.held:
            share.idle_ns = None
            actions.append(Watch(holder.name, share.token.gpu))

    def shorten(self, holder: Member) -> None:
        """End a lease where a limit runs out that binds since the holder is no longer alone.

        Else each neighbour that comes would give the holder the rest of a lease without a limit.
        """
        if holder.phase is not OPEN:
            return
        for share in holder.held:
            if share.has_limit_alone and share.allowance is not None:
                holder.until_ns = min(holder.until_ns, share.allowance.runs_out_at())
        self.deadline = self._next_deadline()

    def close(self, holder: Member, now: int, actions: list[Action]) -> None:
        """Take the tokens back: no launch passes, and what was launched drains."""
        if not holder.reopened:
            holder.draining_ns = now
        holder.phase = CLOSING
        holder.until_ns = now + _drain_timeout_ns(holder)
        for share in holder.held:
            share.closed_ns = now
            actions.append(Close(holder.name, share.token.gpu))

    def shut(self, holder: Member, share: MemberShare, idle_ns: int, now: int) -> Shut:
        """End the use of one GPU that finished its holder's work."""
        share.charge(idle_ns, now)
        holder.held = [other for other in holder.held if other is not share]
        if not holder.held:
            holder.phase = CLOSED
        return Shut(holder.name, share.token.gpu)

    def release(self, member: Member, now: int) -> list[Action]:
        """Shut all gates of a member, which wants nothing any more."""
        member.stop_waiting(now)
        self.note(member)
        forget_booking(member)
        actions: list[Action] = [self.shut(member, share, now, now) for share in member.held]
        for share in member.shares.values():
            share.bypassed_ns = None
        return actions

    def _next_deadline(self) -> int | None:
        times = []
        for token in self._tokens.values():
            if token.held is not None:
                times.append(self._members[token.held.member].until_ns)
            else:
                times += [
                    ready
                    for share in token.shares.values()
                    if share.waits and (ready := self._ready_at(share)) is not None
                ]
        return min(times, default=None)

    def _ready_at(self, share: MemberShare) -> int | None:
        """When a member that only its limits hold back may be served, in ns; None if others do."""
        member = self._members[share.member]
        if member.is_eligible or any(other.token.held for other in member.wanted):
            return None
        return member.ready_at()

    def _due(self, now: int) -> list[Member]:
        """The holders whose lease or drain timeout has ended."""
        due: dict[str, Member] = {}
        for token in self._tokens.values():
            if token.held is not None:
                holder = self._members[token.held.member]
                if now >= holder.until_ns:
                    due[holder.name] = holder
        return list(due.values())

    def _assign(self, now: int, actions: list[Action]) -> None:
        """Give free GPUs to the members that wait for them, in their order."""
        free = [token for token in self._tokens.values() if token.held is None]
        if self._gangs:
            self._assign_in_order(free, now, actions)
            return
        for token in free:
            ready = self._ready(token, now)
            if ready:
                first = ready[0] if len(ready) == 1 else min(ready, key=lambda m: m.rank(now))
                self._open(first, now, None, actions)

    def _ready(self, token: GpuToken, now: int) -> list[Member]:
        """The members that wait for this GPU, below their limits, and hold nothing.

        A member that changes from some GPUs to others has to drain those first.
        """
        ready = []
        for share in token.shares.values():
            if share.waits:
                share.refresh(now)
                member = self._members[share.member]
                if member.is_eligible and not member.held:
                    ready.append(member)
        return ready

    def _assign_in_order(self, free: list[GpuToken], now: int, actions: list[Action]) -> None:
        ready = {member.name: member for token in free for member in self._ready(token, now)}
        in_order = sorted(ready.values(), key=lambda m: (not has_booked(m), m.rank(now)))
        for member in in_order:
            if any(share.token.held is not None for share in member.wanted):
                continue
            ends = booked_until(member.wanted, member.name)
            if ends is None or (not member.is_gang and ends - now >= SHORTEST_GRANT_NS):
                self._open(member, now, ends, actions)

    def _end_of_lease(self, holder: Member, now: int, actions: list[Action]) -> None:
        """Extend the lease if the holder would be chosen again; else close its gates."""
        until = booked_until(holder.held, holder.name)
        rank = holder.rank(now)
        is_next = (until is None or until - now >= SHORTEST_GRANT_NS) and all(
            rank < rival.rank(now) for share in holder.held for rival in self._rivals(share, now)
        )
        if holder.reopened or not is_next or _has_run_out(holder, now):
            self.close(holder, now, actions)
            return
        for share in holder.held:
            share.account(now, using=True)
        holder.until_ns = self._lease_end(holder, now, until)
        actions += [Extend(holder.name, p.token.gpu, holder.until_ns) for p in holder.held]
        self.watch(holder, actions)

    def _rivals(self, share: MemberShare, now: int) -> Iterable[Member]:
        """The members that wait for this GPU alone."""
        for name, other in share.token.shares.items():
            member = self._members[name]
            if other.waits and not member.is_gang:
                other.refresh(now)
                if member.is_eligible:
                    yield member

    def _lease_end(self, member: Member, now: int, until: int | None) -> int:
        grant_ns = min([share.grant_ns(_contending(share, now)) for share in member.held])
        return now + grant_ns if until is None else min(now + grant_ns, until)

    def _open(self, member: Member, now: int, until: int | None, actions: list[Action]) -> None:
        if self._gangs.pop(member.name, None) is not None:
            forget_booking(member)
        member.held = member.wanted
        member.stop_waiting(now)
        member.phase = OPEN
        member.is_new = False
        member.reopened = 0
        member.busy_ns = None
        for share in member.held:
            share.token.held = share
            share.bypassed_ns = share.idle_ns = None
            share.tally.grants += 1
        member.until_ns = self._lease_end(member, now, until)
        actions += [Open(member.name, p.token.gpu, member.until_ns) for p in member.held]
        # A pause of a member alone on its GPU and without a limit costs no one: a job that stalls
        # for some milliseconds each step keeps its gate open.
        member.watched = False
        if any(len(p.token.shares) > 1 or p.allowance is not None for p in member.held):
            self.watch(member, actions)

    def _end_of_drain_timeout(self, holder: Member, now: int, actions: list[Action]) -> None:
        """The drain took too long: reopen the gates once, then bypass the holder."""
        is_busy = _is_busy(holder, now)
        if is_busy and not holder.wanted:
            holder.until_ns = now + _drain_timeout_ns(holder)
            return
        if not is_busy and (holder.reopened or not holder.wanted):
            for share in holder.held:
                self.shut(holder, share, now, now)
                share.bypassed_ns = now
                share.tally.bypasses += 1
                actions.append(Shut(holder.name, share.token.gpu, bypassed=True))
            return
        holder.stop_waiting(now)
        self.note(holder)
        holder.reopened += 1
        holder.phase = OPEN
        holder.until_ns = now + holder.quota_ns
        actions += [
            Open(holder.name, share.token.gpu, holder.until_ns, again=True) for share in holder.held
        ]


def _drain_timeout_ns(holder: Member) -> int:
    """Longer each time: what passed the reopened gate may itself be long work."""
    return max(2 * holder.quota_ns, _DRAIN_TIMEOUT_NS) << holder.reopened


def _is_busy(holder: Member, now: int) -> bool:
    """Whether the holder recently reported that its drain goes on, within the longest drain."""
    recently = holder.busy_ns is not None and now - holder.busy_ns < _DRAIN_TIMEOUT_NS
    return recently and now - holder.draining_ns < _LONGEST_DRAIN_NS


def _contending(share: MemberShare, now: int) -> list[int]:
    """The requests of others that want this GPU, or had it recently and may want it again."""
    return [
        other.spec.request_micros
        for other in share.token.shares.values()
        if other is not share and (other.waits or now - other.closed_ns < PACE_NS)
    ]


def _has_run_out(holder: Member, now: int) -> bool:
    return any(share.has_run_out(now) for share in holder.held)
