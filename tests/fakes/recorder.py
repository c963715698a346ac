"""Keeps the events that a program emits."""

from typing import Any

from kubeshare.kube.controller.events import ObjectReference


class FakeRecorder:
    """Takes the place of an ``EventRecorder``.

    Attributes:
        emitted: about, reason, action, note and type of each event.
    """

    def __init__(self) -> None:
        self.emitted: list[tuple[Any, ...]] = []

    def emit(
        self,
        about: ObjectReference,
        reason: str,
        action: str,
        note: str,
        type: str = "Normal",  # noqa: A002
    ) -> None:
        """Keep an event."""
        self.emitted.append((about, reason, action, note, type))
