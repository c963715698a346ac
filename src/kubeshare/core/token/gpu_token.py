"""The token of one GPU."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeshare.core.token.share import MemberShare
    from kubeshare.core.token.turn import Turn


class GpuToken:
    """The token of one GPU: its holder, its booking, and the time lost in handovers.

    Attributes:
        gpu: UUID of the GPU.
        shares: member name → its share of the GPU.
        held: the share whose gate is not closed.
        turn: the turn in which it is held.
        booked: name of the gang that will get this GPU together with others.
        booked_ns: when the last of those GPUs is expected to be free.
        lost_ns: total time between the end of a use and its report.
    """

    __slots__ = ("booked", "booked_ns", "gpu", "held", "lost_ns", "shares", "turn")

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.shares: dict[str, MemberShare] = {}
        self.held: MemberShare | None = None
        self.turn: Turn | None = None
        self.booked: str | None = None
        self.booked_ns = 0
        self.lost_ns = 0

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

    def clock(self, now: int) -> int:
        """The time without what handovers lost, which counts for no member."""
        return now - self.lost_ns
