"""The events that people read in ``kubectl describe``."""

from types import SimpleNamespace
from typing import Any

import pytest

from fakes.recorder import FakeRecorder
from kubeshare.core.diagnosis.explain import Change
from kubeshare.dialects.priority_and_gang import Standing
from kubeshare.kube.controller.events import ObjectReference
from kubeshare.scheduler.events import Events

POD = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="p", uid="u")


@pytest.fixture
def recorder() -> FakeRecorder:
    return FakeRecorder()


@pytest.fixture
def events(recorder: Any) -> Events:
    return Events(recorder)


REQUESTER: Any = SimpleNamespace(
    reference=POD, key=SimpleNamespace(kind="SharePod"), standing=Standing
)
LIMITED: Any = SimpleNamespace(
    **{**vars(REQUESTER), "standing": lambda: Standing(priority=5, given_priority=100)}
)


def test_bound_is_an_event_only_if_the_condition_does_not_say_all(
    events: Events, recorder: FakeRecorder
) -> None:
    events.bound(REQUESTER, "n1", ("A", "B"))
    assert recorder.emitted == []
    events.bound(LIMITED, "n1", ("A", "B"))
    note = f"vGPU A, B on node n1; {LIMITED.standing().priority_note}"
    assert recorder.emitted == [(POD, "Bound", "Scheduling", note, "Normal")]


def test_unschedulable(events: Events, recorder: FakeRecorder) -> None:
    events.unschedulable(REQUESTER, "NoRoom", "n1/A: compute 0.2 left")
    note = "n1/A: compute 0.2 left. It is tried again when something changes"
    assert recorder.emitted == [(POD, "NoRoom", "Scheduling", note, "Warning")]


def test_a_long_list_of_gpus_leaves_room_for_what_would_help(
    events: Events, recorder: FakeRecorder
) -> None:
    helps: Any = "it would fit if p2 ended"
    change: Change = helps
    events.unschedulable(REQUESTER, "NoRoom", "é" * 2000, change)
    (_, _, _, note, _) = recorder.emitted[0]
    assert note.startswith("é" * 100)
    assert note.endswith("; it would fit if p2 ended. It is tried again when something changes")
    assert 1000 < len(note.encode()) <= 1024


def test_preemption_is_reported_to_both(events: Events, recorder: FakeRecorder) -> None:
    events.preempting(REQUESTER, ["pod a", "pod b"], 5)
    events.preempted(POD, "SharePod default/s", 7, 5)
    mine = (
        "preempts what is of lower priority, up to 5: pod a, and pod b. It is bound when their "
        "nodes have released them; until then the place is kept for it"
    )
    theirs = (
        "evicted to make room for SharePod default/s of priority 7: it is preemptible, and of "
        "priority 5"
    )
    assert recorder.emitted == [
        (POD, "Preempting", "Scheduling", mine, "Normal"),
        (POD, "Preempted", "Preempting", theirs, "Warning"),
    ]


def test_an_invalid_field_is_named_with_what_to_do(events: Events, recorder: FakeRecorder) -> None:
    events.invalid(REQUESTER, "spec.gpu.id", "must be 1 to 63 characters")
    note = "spec.gpu.id: must be 1 to 63 characters. Correct it and apply the SharePod again"
    assert recorder.emitted == [(POD, "Invalid", "Scheduling", note, "Warning")]
