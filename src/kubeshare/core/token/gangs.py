"""Members that want several GPUs at once: all of them or none, and nobody waits for ever.

Members stand in one order (`Member.rank`), whatever GPUs they want. A gang books
its GPUs in one step, when on each of them it would be served next: it stands
before everyone else who waits there, before the holder, and nobody else has
booked. So no gang ever has some of its GPUs and waits for others: there is
nothing of which a circle of waiting members could be made.

A booking does not end anybody's grant, and no GPU is kept idle for it while
somebody can use it: the GPUs are asked back together, when the last of the
present leases is over. Until then the leases that end earlier are extended, or
the GPU is lent to others that want it alone. What is lost is the difference
between the drains, and a rest of time too short for a grant.

A booking is served after at most one quota and one drain. A gang below its
request that waited long stands before everyone on all its GPUs, so it books then
at the latest, but for those who waited longer.
"""

from collections.abc import Iterable, Mapping

from kubeshare.core.token.member import OPEN, Member
from kubeshare.core.token.share import MemberShare


def book(gangs: Mapping[str, Member], members: Mapping[str, Member], now: int) -> None:
    """Book for the gangs that wait, in their order, those whose turn it is."""
    waiting = []
    for gang in gangs.values():
        for share in gang.wanted:
            share.refresh(now)
        if gang.is_eligible:
            waiting.append(gang)
        else:
            forget_booking(gang)
    for gang in sorted(waiting, key=lambda member: member.rank(now)):
        if _is_next(gang, members, now):
            expected = max(_free_at(share, gang, members, now) for share in gang.wanted)
            for share in gang.wanted:
                share.token.booked, share.token.booked_ns = gang.name, expected


def has_booked(member: Member) -> bool:
    """Whether it has booked what it wants."""
    return any(share.token.booked == member.name for share in member.wanted)


def booked_until(shares: Iterable[MemberShare], name: str) -> int | None:
    """When others have booked one of these GPUs first; None: nobody has."""
    times = [share.token.booked_ns for share in shares if share.token.booked not in {None, name}]
    return min(times, default=None)


def forget_booking(member: Member) -> None:
    """It does not want what it booked any more, or has it."""
    for share in member.shares.values():
        if share.token.booked == member.name:
            share.token.booked = None


def _is_next(gang: Member, members: Mapping[str, Member], now: int) -> bool:
    if any(share.token.booked is not None for share in gang.wanted):
        return False  # by others, or by itself
    rank = gang.rank(now)
    return all(
        rank < other.rank(now) for share in gang.wanted for other in _rivals(share, members, now)
    )


def _rivals(share: MemberShare, members: Mapping[str, Member], now: int) -> Iterable[Member]:
    """Who has the GPU, and who waits for it alone; gangs that rank higher had their chance."""
    for name, other in share.token.shares.items():
        member = members[name]
        if other.is_held and member.phase is OPEN:
            yield member
        elif other.waits and not member.is_gang:
            other.refresh(now)
            if member.is_eligible:
                yield member


def _free_at(share: MemberShare, gang: Member, members: Mapping[str, Member], now: int) -> int:
    held = share.token.held
    if held is None or held.member == gang.name:
        return now
    holder = members[held.member]
    return max(now, holder.until_ns) if holder.phase is OPEN else now
