"""Members that want several GPUs at once, without deadlock or starvation.

All members have one order (:meth:`Member.rank`), whatever GPUs they want. A gang books its GPUs
in one step, when it would be served next on each of them: it ranks before all others that wait
there and before the holder, and no other gang has booked. So no gang ever holds some of its
GPUs while it waits for others, and a cycle of waiting members cannot form. GPUs that a member has
to itself are no part of this (``Turns``): for those nobody else waits.

A booking ends no grant, and keeps no GPU idle that another member can use. All of the GPUs are to
be free when the last of them is: when its present lease has ended, and its holder has drained as
long as it did last time. Until then leases that end earlier are extended, or the GPU is lent to
members that want it alone, and asked back so early that they can drain. What is lost is by how
much the drains differ from the last ones, and a remainder too short for a grant.

A drain that is overdue is expected to take as long again, and members far behind their requests
may use the other GPUs until then. Else a gang, and a member whose drains are now short, now long,
would keep a GPU idle for most of the time.

A member whose drains take long gets no GPU for which a gang waits that ranks before it, unless the
gang waits as long for its others (``keeps_waiting``). If it is a gang itself, that is so while the
other gang is expected back.

A booking is served after at most one quota and one drain. A gang below its request that waited
long ranks first on all of its GPUs, after those that waited longer, so it books then at the
latest.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from kubeshare.core.token.entitlement import SHORTEST_GRANT_NS
from kubeshare.core.token.member import Member
from kubeshare.core.token.share import BEHIND, MemberShare, Precedence

GangWait: TypeAlias = tuple[list[MemberShare], tuple[bool, tuple[Precedence, str]]]
"""What a gang waits for, and its place (:meth:`Member.place`)."""

_FAR_BEHIND_NS: Final = 2_000_000_000
"""A member is far behind its request if it misses its request of so much time."""


def book(
    gangs: Mapping[str, Member],
    members: Mapping[str, Member],
    returning: Collection[GangWait],
    now: int,
) -> None:
    """Book GPUs for the waiting gangs whose turn it is, in their order.

    Args:
        gangs: those that wait, by name.
        members: all, by name.
        returning: what gangs are about to wait for.
        now: ns.
    """
    waiting = []
    for gang in gangs.values():
        gang.refresh(now)
        if gang.is_eligible:
            waiting.append(gang)
        else:
            forget_booking(gang)
    for gang in sorted(waiting, key=lambda member: member.rank(now)):
        had_booked = has_booked(gang)
        if had_booked or (_is_next(gang, members, now) and not keeps_waiting(gang, returning, now)):
            free_at = [(share, _free_at(share, now)) for share in gang.wanted]
            for share in gang.wanted:
                token, others = share.token, [at for other, at in free_at if other is not share]
                token.booked = gang.name
                token.booked_ns = max(now, *others)
                token.lent_ns = now + max([abs(at - now) for at in others])
                if not had_booked:
                    token.overdue_ns = token.booked_ns


def has_booked(member: Member) -> bool:
    """Whether it has booked what it wants."""
    return any(share.token.booked == member.name for share in member.wanted)


def booked_until(shares: Iterable[MemberShare], name: str, now: int) -> int | None:
    """When one of these GPUs is to be given back that others have booked; None without one.

    That is so long before it is needed as its last drain took.
    """
    times = [
        (share.token.lent_ns if _is_far_behind(share, now) else share.token.booked_ns)
        - share.last_drain_ns
        for share in shares
        if share.token.booked is not None and share.token.booked != name
    ]
    return min(times) if times else None


def keeps_waiting(member: Member, waits: Iterable[GangWait], now: int) -> bool:
    """Whether a gang whose place is before its own would wait for its drain beyond others."""
    drain_ns = max([share.last_drain_ns for share in member.wanted])
    if drain_ns <= SHORTEST_GRANT_NS:
        return False
    place = member.place(now)
    tokens = [share.token for share in member.wanted]
    for shares, before in waits:
        rest = [other for other in shares if other.token not in tokens]
        if before < place and len(rest) < len(shares):
            waits_ns = max([abs(_free_at(other, now) - now) for other in rest], default=0)
            if drain_ns > waits_ns:
                return True
    return False


def forget_booking(member: Member) -> None:
    """Drop a member's bookings: it got its GPUs, or no longer wants them."""
    for share in member.shares.values():
        if share.token.booked == member.name:
            share.token.booked = None


def _is_far_behind(share: MemberShare, now: int) -> bool:
    order, amount = share.precedence(now)
    return order == BEHIND and -amount > _FAR_BEHIND_NS * share.spec.request_micros


def _is_next(gang: Member, members: Mapping[str, Member], now: int) -> bool:
    if any(share.token.booked is not None for share in gang.wanted):
        return False  # by others, or by itself
    rank = gang.rank(now)
    return all(rank < other for share in gang.wanted for other in _rival_ranks(share, members, now))


def _rival_ranks(
    share: MemberShare, members: Mapping[str, Member], now: int
) -> Iterable[tuple[Precedence, str]]:
    """Of the holder and those that wait for this GPU alone; gangs that rank higher came first."""
    for name, other in share.token.shares.items():
        member = members[name]
        turn = other.turn
        if turn is not None and turn.is_open:
            yield turn.rank(now)
        elif other.waits and not member.is_gang:
            other.refresh(now)
            if member.is_eligible:
                yield member.rank(now)


def _free_at(share: MemberShare, now: int) -> int:
    """When the holder's work ends, or was to end, if it drains as long as it did last time."""
    turn, held = share.token.turn, share.token.held
    if turn is None or held is None:
        return now
    closes_ns = turn.until_ns if turn.is_open else held.closed_ns
    return closes_ns + held.last_drain_ns
