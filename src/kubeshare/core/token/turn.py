"""One turn: tokens of GPUs, from the grant to the drain's end."""

import enum
from typing import Final

from kubeshare.core.token.share import MemberShare, Precedence


class Phase(enum.Enum):
    """The state of the gates that are held."""

    OPEN = enum.auto()
    CLOSING = enum.auto()


# Names of the module: an attribute of an enumeration takes ten times as long to look up.
OPEN: Final = Phase.OPEN
CLOSING: Final = Phase.CLOSING


def precedence_of(shares: list[MemberShare], now: int) -> Precedence:
    """That of the share on which their member has most; ``shares`` is not empty."""
    worst = shares[0].precedence(now)
    if len(shares) > 1:
        worst = max(share.precedence(now) for share in shares)
    return worst


def are_prompt(shares: list[MemberShare], now: int) -> bool:
    """Whether their member is served promptly on all of these GPUs."""
    if len(shares) == 1:
        return shares[0].is_prompt(now)
    return all(share.is_prompt(now) for share in shares)


class Turn:
    """Tokens that are granted, extended and taken back together.

    Args:
        member: the name of their holder.
        held: the shares whose gates are not closed, in the order of the GPUs' UUIDs.

    Attributes:
        granted: the shares that were held at first.
        until_ns: when OPEN the end of the lease, when CLOSING the deadline of the drain; after
            that, until when its member is expected to ask again.
        watched: whether the holder has been asked to report when it is idle.
        reopened: how often its drain took too long.
        draining_ns: when it first began to drain.
        busy_ns: when the holder last reported that a drain goes on; None if it has not.
    """

    __slots__ = (
        "busy_ns",
        "draining_ns",
        "granted",
        "held",
        "member",
        "phase",
        "reopened",
        "until_ns",
        "watched",
    )

    def __init__(self, member: str, held: list[MemberShare]) -> None:
        self.member = member
        self.held = self.granted = held
        self.phase: Phase = OPEN
        self.until_ns = 0
        self.watched = False
        self.reopened = 0
        self.draining_ns = 0
        self.busy_ns: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether launches may pass."""
        return self.phase is OPEN

    @property
    def is_whole(self) -> bool:
        """Whether nobody else waits for what is held."""
        return all(share.has_whole_gpu for share in self.held)

    def place(self, now: int) -> tuple[bool, tuple[Precedence, str]]:
        """The place at which the holder would be served again; see ``Member.place``."""
        return not self.is_prompt(now), self.rank(now)

    def is_prompt(self, now: int) -> bool:
        """Whether the holder is within what is served promptly."""
        return are_prompt(self.held, now)

    def rank(self, now: int) -> tuple[Precedence, str]:
        """The rank at which the holder would be served again; see ``Member.rank``."""
        return precedence_of(self.held, now), self.member
