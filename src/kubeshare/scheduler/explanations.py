"""Decides when the reasons of a pending decision are renewed.

A decision takes microseconds; its reasons, and the change that would help, take time in
proportion to the number of GPUs, and each message that has other numbers is a write. So a
condition that does not show the reason yet gets its message at once. After that the message is
renewed only as often as a share of the processor and a rate of writes allow for all that wait: on
a small cluster with few of them that is always.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.controller.pending import NotBefore
from kubeshare.scheduler.requesters.base import RequesterKey

PLACES_AT_ONCE: Final = 5000
"""GPUs and nodes that are explained in a row for all that wait, about 20 ms of work."""
_SECONDS_A_PLACE: Final = 4e-6
_PROCESSOR_SHARE: Final = 0.005
FEW: Final = 10
"""As many that wait have their messages renewed at each change, with an event."""
SECONDS_A_MESSAGE: Final = 0.5
"""The messages of more are renewed, on average, one in so many seconds."""
EVENT_SECONDS: Final = 600.0
"""Of one of more, a renewed message is an event at most once in so many seconds."""
MAX_SECONDS: Final = 3600.0
"""A message is renewed after so many seconds however many wait."""


class Explanation(NamedTuple):
    """What is computed to report a pending decision.

    Attributes:
        ledger: what the decision was made with.
        message: why the demand is not scheduled.
        suggest: finds the change that would help; it takes many decisions.
        requesters: how many have it in their conditions.
    """

    ledger: Ledger
    message: Callable[[], str]
    suggest: Callable[[], Change | None] = lambda: None
    requesters: int = 1


class Explanations:
    """Remembers when each requester's message may be renewed, and when that is an event."""

    def __init__(self) -> None:
        self._next: NotBefore[RequesterKey] = NotBefore()
        self._next_event: NotBefore[RequesterKey] = NotBefore()

    def seconds_left(self, key: RequesterKey) -> float:
        """Seconds until the message may be renewed; 0 if it may be now."""
        return self._next.remaining(key)

    def is_event_due(self, key: RequesterKey) -> bool:
        """Whether a renewed message is an event."""
        return not self._next_event.remaining(key)

    def computed(self, key: RequesterKey, ledger: Ledger, waiting: int) -> None:
        """Note that the reasons have been computed.

        Args:
            key: of the requester.
            ledger: what was explained.
            waiting: how many requesters have to be explained in turn.
        """
        seconds = 0.0
        places = (len(ledger.devices) + len(ledger.nodes)) * waiting
        if places > PLACES_AT_ONCE:
            seconds = places * _SECONDS_A_PLACE / _PROCESSOR_SHARE
        if waiting > FEW:
            seconds = max(seconds, waiting * SECONDS_A_MESSAGE)
        if seconds:
            self._next.delay(key, min(seconds, MAX_SECONDS))

    def reported(self, key: RequesterKey, waiting: int) -> None:
        """Note that there was an event; the arguments are those of ``computed``."""
        if waiting > FEW:
            self._next_event.delay(key, EVENT_SECONDS)

    def forget(self, key: RequesterKey) -> None:
        """Drop what is known about a requester that is scheduled or gone."""
        self._next.forget(key)
        self._next_event.forget(key)
