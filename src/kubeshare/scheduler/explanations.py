"""Decides when the reasons of a pending decision are computed again.

A decision takes microseconds; its reasons, and the change that would help, take time in
proportion to the number of GPUs. So they are computed for a condition that does not show the
reason yet, and after that only as often as their share of the processor allows. On a small
cluster that is always.
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


class Explanation(NamedTuple):
    """What is computed to report a pending decision.

    Attributes:
        ledger: what the decision was made with.
        message: why the demand is not scheduled.
        suggest: finds the change that would help; it takes many decisions.
    """

    ledger: Ledger
    message: Callable[[], str]
    suggest: Callable[[], Change | None] = lambda: None


class Explanations:
    """Remembers when each requester's reasons may be computed again."""

    def __init__(self) -> None:
        self._next: NotBefore[RequesterKey] = NotBefore()

    def is_due(self, key: RequesterKey) -> bool:
        """Whether the reasons may be computed again for a condition that shows older ones."""
        return not self._next.remaining(key)

    def computed(self, key: RequesterKey, ledger: Ledger, waiting: int) -> None:
        """Note that the reasons have been computed.

        Args:
            key: of the requester.
            ledger: what was explained.
            waiting: how many requesters have to be explained in turn.
        """
        places = (len(ledger.devices) + len(ledger.nodes)) * waiting
        if places > PLACES_AT_ONCE:
            self._next.delay(key, places * _SECONDS_A_PLACE / _PROCESSOR_SHARE)

    def forget(self, key: RequesterKey) -> None:
        """Drop what is known about a requester that is scheduled or gone."""
        self._next.forget(key)
