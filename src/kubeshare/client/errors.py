"""Errors of the client: why waiting fails."""

from typing import Final

from kubeshare.api.types.reasons import Reason
from kubeshare.client.sharepod import SharePodState

HOPELESS: Final = frozenset({Reason.NEVER_FITS, Reason.INVALID})
"""Reasons of the condition ``Scheduled`` that last until the SharePod or the cluster is changed."""
REFUSED: Final = frozenset({Reason.INVALID_POD, Reason.POD_FAILED})
"""Reasons of the condition ``Ready`` after which no other pod is created."""


class WaitError(Exception):
    """A SharePod does not become what was waited for; the message says why.

    Attributes:
        sharepod: as it was last seen.
        reason: the reason of the condition that says so; ``""`` if none does.
    """

    exit_code = 1

    def __init__(self, sharepod: SharePodState, why: str) -> None:
        blocker = sharepod.blocker
        words = f"; {blocker.reason}: {blocker.message}" if blocker else ""
        super().__init__(f"SharePod {sharepod.namespace}/{sharepod.name} {why}{words}")
        self.sharepod = sharepod
        self.reason = blocker.reason if blocker else ""


class UnschedulableError(WaitError):
    """No GPU fits now, or none ever will (``NeverFits``, ``Invalid``)."""


class FailedError(WaitError):
    """Its pod has failed, or is refused."""


class DeletedError(WaitError):
    """It was deleted."""


class WaitTimeoutError(WaitError, TimeoutError):
    """The time is over; the reason says what it waits for."""
