"""The time token: which member uses which GPUs now, how long.

One :class:`Arbiter` a machine. It is a state machine without I/O, clock or threads: events go in
with the time at which they happened, actions come out, and ``deadline`` is the time of the next
``tick`` if no event comes before::

    CLOSED ──want──▶ (waiting) ──chosen──▶ OPEN ──lease over, idle──▶ CLOSING ──drained──▶ CLOSED

On each GPU at most one member is not CLOSED. ``usage`` measures how much each member used,
``entitlement`` accounts for requests and limits exactly, ``pauses`` bounds what nobody pays for,
``turns`` chooses the next holder, and ``gangs`` serves members that need several GPUs at once. A
GPU that only one member may use, without a limit, is granted by itself, whatever else that member
waits for.
"""

from kubeshare.core.token.action import Action, Close, Extend, Open, Shut, Watch
from kubeshare.core.token.arbiter import QUOTA_NS, Amounts, Arbiter, UnknownMemberError
from kubeshare.core.token.member import MemberView
from kubeshare.core.token.tally import Tally
from kubeshare.core.token.usage import DECAYED_AVERAGE, SLIDING_WINDOW, Measure
from kubeshare.core.token.waits import WAIT_BOUNDS_NS, Waits

__all__ = [
    "DECAYED_AVERAGE",
    "QUOTA_NS",
    "SLIDING_WINDOW",
    "WAIT_BOUNDS_NS",
    "Action",
    "Amounts",
    "Arbiter",
    "Close",
    "Extend",
    "Measure",
    "MemberView",
    "Open",
    "Shut",
    "Tally",
    "UnknownMemberError",
    "Waits",
    "Watch",
]
