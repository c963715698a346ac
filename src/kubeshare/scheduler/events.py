"""The scheduler's events: what a person sees under ``kubectl describe sharepod``."""

from collections.abc import Sequence

from kubeshare.api.v1 import SHAREPODS, SharePod
from kubeshare.core.explain import Change
from kubeshare.kube.events import NORMAL, NOTE_LIMIT, WARNING, EventRecorder, cut, reference

_ACTION = "Scheduling"


class Events:
    """Tells what became of SharePods.

    Args:
        recorder: writes the events.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def bound(self, sharepod: SharePod, node: str, gpuids: Sequence[str], *, new: bool) -> None:
        """A part of a GPU is taken, and the SharePod says so."""
        made = "new " if new else ""
        note = f"{made}vGPU {', '.join(gpuids)} on node {node}"
        self._emit(sharepod, "Bound", note)

    def waits(
        self, sharepod: SharePod, reason: str, message: str, change: Change | None = None
    ) -> None:
        """Nothing fits; the message says why for each GPU.

        Args:
            sharepod: that waits.
            reason: in a word.
            message: why, for each GPU.
            change: what would let it in, where that is known.
        """
        then = f"; {change}" if change else ""
        then += ". It is tried again when something changes"
        # A long list of GPUs must not push out what would help.
        room = NOTE_LIMIT - len(then.encode())
        self._emit(sharepod, reason, cut(message, room) + then, WARNING)

    def invalid(self, sharepod: SharePod, field: str, message: str) -> None:
        """A value is not acceptable."""
        note = f"{field}: {message}. Correct it and apply the SharePod again"
        self._emit(sharepod, "Invalid", note, WARNING)

    def _emit(self, sharepod: SharePod, reason: str, note: str, kind: str = NORMAL) -> None:
        self._recorder.emit(reference(SHAREPODS, sharepod), reason, _ACTION, note, type=kind)
