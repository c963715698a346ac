"""The token of one GPU."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubeshare.core.token.share import MemberShare
    from kubeshare.core.token.turn import Turn

_MADE_UP_MAX_NS: Final = 250_000_000
"""So much of the time lost is made up for at most; what was lost before that stays lost."""


class GpuToken:
    """The token of one GPU: its holder, its booking, and the time lost in handovers.

    Attributes:
        gpu: UUID of the GPU.
        shares: member name → its share of the GPU.
        held: the share whose gate is not closed.
        turn: the turn in which it is held.
        booked: name of the gang that will get this GPU together with others.
        booked_ns: when the last of the others is expected to be free.
        lent_ns: until when who is far behind its request may use it; later, if others are overdue.
        overdue_ns: the same when it booked; from then on its holder keeps the gang waiting.
        lost_ns: total time between the end of a use and its report that was not made up for.
        to_make_up_ns: so much of it may still be made up for.
    """

    __slots__ = (
        "booked",
        "booked_ns",
        "gpu",
        "held",
        "lent_ns",
        "lost_ns",
        "overdue_ns",
        "shares",
        "to_make_up_ns",
        "turn",
    )

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.shares: dict[str, MemberShare] = {}
        self.held: MemberShare | None = None
        self.turn: Turn | None = None
        self.booked: str | None = None
        self.booked_ns = self.lent_ns = self.overdue_ns = 0
        self.lost_ns = self.to_make_up_ns = 0

    def add(self, share: "MemberShare", now: int) -> None:
        """Add the share of a new member."""
        self.shares[share.member] = share
        self._set_alone(now)

    def remove(self, member: str, now: int) -> None:
        """Remove the share of a member; who is left alone is held to its limit while alone."""
        del self.shares[member]
        self._set_alone(now)

    def _set_alone(self, now: int) -> None:
        is_alone = len(self.shares) == 1
        for share in self.shares.values():
            share.set_alone(now, is_alone=is_alone)

    def lose(self, lost_ns: int) -> None:
        """Take so much time from all members in proportion."""
        self.lost_ns += lost_ns
        self.to_make_up_ns = min(_MADE_UP_MAX_NS, self.to_make_up_ns + lost_ns)

    def make_up(self, spare_ns: int) -> None:
        """Count so much of the lost time after all: it was lost to nobody's request.

        Whoever has its request used this time, so the others can have theirs in full.
        """
        made_up_ns = min(spare_ns, self.to_make_up_ns)
        self.to_make_up_ns -= made_up_ns
        self.lost_ns -= made_up_ns

    def clock(self, now: int) -> int:
        """The time without what handovers lost, which counts for no member."""
        return now - self.lost_ns
