"""One GPU's arbiter: events in, actions out.

The choice is that of the KubeShare paper (HPDC '20, section 4.5): drop those at
their limit; of the rest take the one furthest below its request; when all have
their request, the one that used least.

What is charged: from the grant (for a grant that was extended, from the last
extension) to the moment the GPU itself was done with the holder, as the holder
reports it. A report is believed only within the grant: not before it began, not
after now. A holder that does not report is charged until it is bypassed.
"""

from collections.abc import Iterable

import msgspec

from kubeshare.core.token.member import Member, MemberView, Phase

QUOTA_NS = 100_000_000
_SHORTEST_DRAIN_NS = 200_000_000


class UnknownMemberError(LookupError):
    """An event names a member that was never added, or has been removed."""


class Open(msgspec.Struct, frozen=True):
    """Open the member's gate until `lease_end_ns`."""

    member: str
    lease_end_ns: int


class Watch(msgspec.Struct, frozen=True):
    """Ask the holder to say when it is idle: it would be charged for nothing."""

    member: str


class Extend(msgspec.Struct, frozen=True):
    """Move the end of the holder's lease; its gate stays open."""

    member: str
    lease_end_ns: int


class Close(msgspec.Struct, frozen=True):
    """Ask the holder to stop launching, and to report when the GPU is done with it."""

    member: str


class Shut(msgspec.Struct, frozen=True):
    """Close the member's gate. `bypassed`: it did not report in time, its work may go on."""

    member: str
    bypassed: bool = False


Action = Open | Watch | Extend | Close | Shut


class Arbiter:
    """Hands one GPU's token from member to member.

    Args:
        quota_ns: the longest time between two decisions, of members that have no own one.

    All methods take `now`, ns on one monotonic clock that never runs backwards,
    and return the actions to carry out, in order.
    """

    def __init__(self, quota_ns: int = QUOTA_NS) -> None:
        self.quota_ns = quota_ns
        self._members: dict[str, Member] = {}
        self._holder: Member | None = None
        self._until_ns = 0  # of the holder: the lease's end when OPEN, the drain's when CLOSING

    @property
    def holder(self) -> str | None:
        """The member whose gate is open or closing."""
        return self._holder.name if self._holder else None

    def deadline(self) -> int | None:
        """When `tick` has something to do if no event comes before; None: never."""
        if self._holder is not None:
            return self._until_ns
        ready = [m.allowance.ready_at() for m in self._waiting() if m.allowance and m.held_back]
        return min((at for at in ready if at is not None), default=None)

    def add(
        self, name: str, request: int, limit: int, now: int, *, quota_ns: int | None = None
    ) -> list[Action]:
        """A new member; its use starts at its request, so it neither storms in nor waits.

        Args:
            name: unique on this GPU.
            request: micros.
            limit: micros.
            now: ns.
            quota_ns: its own, instead of the arbiter's.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._members:
            raise ValueError(f"{name} is a member already")
        self._members[name] = Member(name, request, limit, quota_ns or self.quota_ns, now)
        holder = self._holder
        if holder is not None and holder.phase is Phase.OPEN and not holder.watched:
            holder.watched = True
            return [Watch(holder.name)]
        return []

    def remove(self, name: str, now: int) -> list[Action]:
        """The member is no more; its gate is shut and the token passes on."""
        actions = self.gone(name, now)
        del self._members[name]
        return actions

    def want(self, name: str, now: int) -> list[Action]:
        """A launch of the member waits at its closed gate."""
        member = self._member(name)
        if member.phase is not Phase.OPEN:
            member.start_waiting(now)
        return self._decide(now, [])

    def idle(self, name: str, now: int) -> list[Action]:
        """A watched holder has nothing queued: take the token back, uncharged from then on.

        Its gate is closed as at any end, so that a launch in the same instant is
        drained and charged, and its next launch asks again.
        """
        actions: list[Action] = []
        if self._holder is self._member(name) and self._holder.phase is Phase.OPEN:
            self._close(self._holder, now, actions)
        return self._decide(now, actions)

    def drained(self, name: str, idle_ns: int, now: int) -> list[Action]:
        """The GPU was done with the member's work at `idle_ns`."""
        member = self._member(name)
        actions: list[Action] = []
        if member.phase is Phase.CLOSING:
            self._shut(member, idle_ns, now, actions)
        else:
            member.charge_late(idle_ns, now)
        return self._decide(now, actions)

    def gone(self, name: str, now: int) -> list[Action]:
        """No process of the member is left."""
        member = self._member(name)
        member.stop_waiting(now)
        member.bypassed_ns = None
        actions: list[Action] = []
        if member is self._holder:
            self._shut(member, now, now, actions)
        return self._decide(now, actions)

    def tick(self, now: int) -> list[Action]:
        """Time has passed."""
        return self._decide(now, [])

    def views(self, now: int) -> list[MemberView]:
        """What everyone holds and got, in the order of joining."""
        return [member.view(now) for member in self._members.values()]

    def _member(self, name: str) -> Member:
        try:
            return self._members[name]
        except KeyError:
            raise UnknownMemberError(f"no member {name} on this GPU") from None

    def _waiting(self) -> Iterable[Member]:
        return (m for m in self._members.values() if m.waiting_since_ns is not None)

    def _decide(self, now: int, actions: list[Action]) -> list[Action]:
        """Carry out what is due at `now`."""
        holder = self._holder
        if holder is not None and now >= self._until_ns:
            if holder.phase is Phase.CLOSING:
                self._shut(holder, now, now, actions, bypassed=True)
            else:
                self._end_of_lease(holder, now, actions)
        if self._holder is None:
            chosen = self._choose(now)
            if chosen is not None:
                self._open(chosen, now, actions)
        return actions

    def _choose(self, now: int) -> Member | None:
        for member in self._waiting():
            member.account(now, using=False)
        able = (member for member in self._waiting() if not member.held_back)
        return min(able, key=lambda member: member.rank(now, using=False), default=None)

    def _end_of_lease(self, holder: Member, now: int, actions: list[Action]) -> None:
        """Extend the lease when the holder would be chosen again; else close its gate."""
        rival = self._choose(now)
        is_next = rival is None or holder.rank(now, using=True) < rival.rank(now, using=False)
        if holder.has_run_out(now) or not is_next:
            self._close(holder, now, actions)
            return
        holder.account(now, using=True)
        self._until_ns = now + holder.grant_ns()
        actions.append(Extend(holder.name, self._until_ns))
        if not holder.watched:
            holder.watched = True
            actions.append(Watch(holder.name))

    def _open(self, member: Member, now: int, actions: list[Action]) -> None:
        member.account(now, using=False)
        member.stop_waiting(now)
        member.bypassed_ns = None
        member.phase = Phase.OPEN
        self._holder = member
        self._until_ns = now + member.grant_ns()
        actions.append(Open(member.name, self._until_ns))
        # Alone and without a limit nobody minds a pause within its first quota: a job
        # that stalls for some milliseconds each step keeps its gate open meanwhile.
        member.watched = len(self._members) > 1 or member.allowance is not None
        if member.watched:
            actions.append(Watch(member.name))

    def _close(self, holder: Member, now: int, actions: list[Action]) -> None:
        holder.phase = Phase.CLOSING
        self._until_ns = now + max(2 * holder.quota_ns, _SHORTEST_DRAIN_NS)
        actions.append(Close(holder.name))

    def _shut(
        self,
        holder: Member,
        idle_ns: int,
        now: int,
        actions: list[Action],
        *,
        bypassed: bool = False,
    ) -> None:
        holder.charge(idle_ns, now)
        holder.phase = Phase.CLOSED
        holder.bypassed_ns = now if bypassed else None
        self._holder = None
        actions.append(Shut(holder.name, bypassed=bypassed))
