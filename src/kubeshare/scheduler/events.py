"""The scheduler's events: what a person sees under ``kubectl describe``."""

from collections.abc import Sequence

from kubeshare.core.diagnosis.explain import Change
from kubeshare.kube.controller.events import (
    NORMAL,
    NOTE_LIMIT,
    WARNING,
    EventRecorder,
    ObjectReference,
    cut,
)
from kubeshare.scheduler.requesters.base import Asker

_ACTION = "Scheduling"


class Events:
    """Tells what became of askers.

    Args:
        recorder: writes the events.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def bound(self, asker: Asker, node: str, gpuids: Sequence[str], *, new: bool) -> None:
        """A part of a GPU is taken, and the asker says so."""
        made = "new " if new else ""
        note = f"{made}vGPU {', '.join(gpuids)} on node {node}"
        self._emit(asker, "Bound", note)

    def waits(self, asker: Asker, reason: str, message: str, change: Change | None = None) -> None:
        """Nothing fits; the message says why for each GPU.

        Args:
            asker: that waits.
            reason: in a word.
            message: why, for each GPU.
            change: what would let it in, where that is known.
        """
        then = f"; {change}" if change else ""
        then += ". It is tried again when something changes"
        # A long list of GPUs must not push out what would help.
        room = NOTE_LIMIT - len(then.encode())
        self._emit(asker, reason, cut(message, room) + then, WARNING)

    def preempts(self, asker: Asker, words: Sequence[str], priority: int) -> None:
        """Others have to leave for it."""
        note = (
            f"preempts what is of lower priority, up to {priority}: {', and '.join(words)}. It is "
            "bound when their nodes have released them; until then the place is kept for it"
        )
        self._emit(asker, "Preempting", note)

    def preempted(
        self, about: ObjectReference, owner: str, priority: int, own_priority: int
    ) -> None:
        """It has to leave for another one."""
        note = (
            f"evicted to make room for {owner} of priority {priority}: it is preemptible, and of "
            f"priority {own_priority}"
        )
        self._recorder.emit(about, "Preempted", "Preempting", note, type=WARNING)

    def invalid(self, asker: Asker, field: str, message: str) -> None:
        """A value is not acceptable."""
        note = f"{field}: {message}. Correct it and apply the {asker.key.kind} again"
        self._emit(asker, "Invalid", note, WARNING)

    def _emit(self, asker: Asker, reason: str, note: str, kind: str = NORMAL) -> None:
        self._recorder.emit(asker.reference, reason, _ACTION, note, type=kind)
