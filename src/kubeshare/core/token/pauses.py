"""How much of a member's pauses nobody pays for."""

from typing import Final

from kubeshare.core.units import MICROS

_SAVED_NS: Final = 2_000_000_000
"""A member may save up the free pauses of so much time."""

_HANDOVER_NS: Final = 300_000
"""The end of work that is reported so late is no pause; a library reports within 0.2 ms."""

_OF_HANDOVER: Final = 16
"""So is this part of a use at most, 0.3 ms of the shortest grant: members whose turns are only a
handover would else have the GPU for nothing, one after another."""


class Pauses:
    """The time between the end of a member's work and its report.

    That time is lost for all members alike, and charged to none: a member that answers requests
    pauses after each. But one that says of every turn that it paused all along would hold the GPU
    for nothing, and many such members would keep the others from it for ever. So what is not
    charged is a part of each member's time, and all of it together a part of the requests of all.

    Args:
        now: ns.
    """

    __slots__ = ("_at_ns", "_left")

    def __init__(self, now: int) -> None:
        self._left = _SAVED_NS * MICROS  # ns, in millionths; at most its part of these
        self._at_ns = now

    def believed_end(self, idle_ns: int, now: int, free: int, held_ns: int) -> int:
        """When work ended of which is said that it did at `idle_ns`: then, or later.

        Args:
            idle_ns: not before the use that ended now was last accounted for.
            now: ns.
            free: so much of the time may be pauses that nobody pays for, in micros.
            held_ns: how long the use lasted that ends now.
        """
        left = min(self._left + (now - self._at_ns) * free, _SAVED_NS * free)
        handover_ns = min(_HANDOVER_NS, held_ns // _OF_HANDOVER)
        pause_ns = max(0, now - handover_ns - idle_ns)
        unpaid_ns = min(pause_ns, left // MICROS)
        self._left, self._at_ns = left - unpaid_ns * MICROS, now
        return idle_ns if unpaid_ns == pause_ns else now - handover_ns - unpaid_ns
