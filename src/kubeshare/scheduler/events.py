"""Emits the scheduler's events, which ``kubectl describe`` shows."""

from collections.abc import Sequence

from kubeshare.core.diagnosis.explain import Change
from kubeshare.kube.controller.events import (
    NORMAL,
    NOTE_LIMIT,
    WARNING,
    EventRecorder,
    ObjectReference,
    truncate_note,
)
from kubeshare.scheduler.requesters.base import Requester

_ACTION = "Scheduling"


class Events:
    """Reports the outcome for requesters."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def bound(self, requester: Requester, node: str, gpuids: Sequence[str]) -> None:
        """The requester is assigned these vGPUs with a limited priority.

        Its condition says the rest: an event for each decision costs more than it tells.
        """
        limited = requester.standing().priority_note
        if limited:
            self._emit(requester, "Bound", f"vGPU {', '.join(gpuids)} on node {node}; {limited}")

    def unschedulable(
        self, requester: Requester, reason: str, message: str, change: Change | None = None
    ) -> None:
        """The requester is not scheduled.

        Args:
            requester: the requester.
            reason: the reason of its condition.
            message: why, for each GPU.
            change: a change of the cluster that would let it in, if one is known.
        """
        notes = (change, requester.standing().priority_note)
        then = "".join(f"; {words}" for words in notes if words)
        then += ". It is tried again when something changes"
        # A long list of GPUs must not cut off the change that would help.
        room = NOTE_LIMIT - len(then.encode())
        self._emit(requester, reason, truncate_note(message, room) + then, WARNING)

    def preempting(self, requester: Requester, words: Sequence[str], priority: int) -> None:
        """Pods of at most that priority are evicted for the requester."""
        note = (
            f"preempts what is of lower priority, up to {priority}: {', and '.join(words)}. It is "
            "bound when their nodes have released them; until then the place is kept for it"
        )
        self._emit(requester, "Preempting", note)

    def preempted(
        self, about: ObjectReference, owner: str, priority: int, own_priority: int
    ) -> None:
        """A pod is evicted for a requester of higher priority."""
        note = (
            f"evicted to make room for {owner} of priority {priority}: it is preemptible, and of "
            f"priority {own_priority}"
        )
        self._recorder.emit(about, "Preempted", "Preempting", note, type=WARNING)

    def invalid(self, requester: Requester, field: str, message: str) -> None:
        """A field of the requester is not acceptable."""
        note = f"{field}: {message}. Correct it and apply the {requester.key.kind} again"
        self._emit(requester, "Invalid", note, WARNING)

    def _emit(self, requester: Requester, reason: str, note: str, kind: str = NORMAL) -> None:
        self._recorder.emit(requester.reference, reason, _ACTION, note, type=kind)
