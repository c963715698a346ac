"""The time token: who may use a GPU now, and for how long.

One `Arbiter` a GPU. It is a state machine without I/O, clock or threads: events
go in with the time at which they happened, actions come out, and `deadline`
says when to come back with a tick if nothing happens before::

    CLOSED ──want──▶ (waiting) ──chosen──▶ OPEN ──lease over, idle──▶ CLOSING ──drained──▶ CLOSED

At most one member of a GPU is not CLOSED. `usage` has the two measures that
decide: the decayed average that fairness compares, and the allowance that
holds a member to its limit.
"""

from kubeshare.core.token.arbiter import (
    Action,
    Arbiter,
    Close,
    Extend,
    Open,
    Shut,
    UnknownMemberError,
    Watch,
)
from kubeshare.core.token.member import MemberView

__all__ = [
    "Action",
    "Arbiter",
    "Close",
    "Extend",
    "MemberView",
    "Open",
    "Shut",
    "UnknownMemberError",
    "Watch",
]
