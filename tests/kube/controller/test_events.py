"""Events: written once, counted after that, and never in the way."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kube.expectations import expect_true, expect_value
from kubeshare.kube.controller import events
from kubeshare.kube.controller.events import (
    ATTEMPTS,
    BURST,
    REFILL_SECONDS,
    REFRESH_SECONDS,
    WARNING,
    EventRecorder,
    ObjectReference,
    reference,
    truncate_note,
)
from kubeshare.kube.resources import EVENTS, NODES, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

POD = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p", uid="u1")
START = datetime(2026, 1, 1, tzinfo=UTC)


def recorder(server: FakeApiServer) -> tuple[EventRecorder, asyncio.Task[None]]:
    loop = asyncio.get_running_loop()
    made = EventRecorder(
        server.client(),
        "example.test/program",
        "program-0",
        wall_clock=lambda: START + timedelta(seconds=loop.time()),
    )
    return made, asyncio.create_task(made.run())


def wait(made: EventRecorder, note: str = "It waits for room.", **fields: Any) -> None:
    made.emit(POD, "FailedScheduling", "Schedule", note, type=WARNING, **fields)


async def expect_events(server: FakeApiServer, count: int = 0) -> None:
    """So many events are stored; any, if no number is given."""
    if count:
        await expect_value(lambda: len(server.all(EVENTS)), count)
    else:
        await expect_true(lambda: server.all(EVENTS), "an event")


def test_an_event_has_its_object_its_controller_and_its_note(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        node = server.seed(NODES, {"metadata": {"name": "n1"}})
        wait(made, related=reference(NODES, node))
        assert server.all(EVENTS) == []  # nothing is written inside the call
        await expect_events(server)
        (event,) = server.all(EVENTS)
        assert event["metadata"]["namespace"] == "a"
        assert event["metadata"]["name"].startswith("p.")
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "a",
            "name": "p",
            "uid": "u1",
        }
        assert event["related"]["name"] == "n1"
        assert (event["type"], event["reason"], event["action"], event["note"]) == (
            "Warning",
            "FailedScheduling",
            "Schedule",
            "It waits for room.",
        )
        assert event["reportingController"] == "example.test/program"
        assert event["reportingInstance"] == "program-0"
        assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
        assert "series" not in event
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize("cut_at", ["-", "."])
def test_the_event_of_a_very_long_name_has_a_name_that_the_server_takes(
    server: FakeApiServer, cut_at: str
) -> None:
    async def main() -> None:
        made, running = recorder(server)
        long = ObjectReference(
            api_version="v1", kind="Pod", namespace="a", name=f"{'a' * 219}{cut_at}tail", uid="u2"
        )
        made.emit(long, "FailedScheduling", "Schedule", "It waits for room.")
        await expect_events(server)
        (event,) = server.all(EVENTS)
        assert event["metadata"]["name"].startswith(f"{'a' * 219}.")
        running.cancel()

    run_virtual(main())


def test_a_repeated_event_is_one_object_and_few_writes(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for _ in range(1200):
            wait(made)
            await asyncio.sleep(1)
        await asyncio.sleep(400)
        (event,) = server.all(EVENTS)
        assert event["series"]["count"] == 1200
        assert event["series"]["lastObservedTime"] == "2026-01-01T00:19:59.000000Z"
        assert server.writes <= 7
        running.cancel()

    run_virtual(main())


def test_after_a_pause_the_same_event_is_a_new_one(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await asyncio.sleep(1000)
        wait(made)
        await expect_events(server, 2)
        running.cancel()

    run_virtual(main())


def test_another_note_or_object_is_another_event(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        wait(made, "Another reason.")
        made.emit(reference(PODS, {"metadata": {"name": "q", "namespace": "b"}}), "R", "A", "n")
        await expect_events(server, 3)
        running.cancel()

    run_virtual(main())


def test_a_loop_cannot_flood_the_server_and_others_are_not_hurt(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for number in range(1000):
            wait(made, f"note {number}")
        other = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="q", uid="u2")
        made.emit(other, "Scheduled", "Schedule", "It runs.")
        await asyncio.sleep(10)
        assert len(server.all(EVENTS)) == BURST + 1
        assert made.dropped == 1000 - BURST
        await asyncio.sleep(300)
        wait(made, "one more, five minutes later")
        await expect_events(server, BURST + 2)
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize(
    "fault",
    [
        Fault.refuse(),
        Fault.reset(),
        Fault.reset(after=True),
        Fault.answer(500, "InternalError"),
        Fault.answer(500, "InternalError", after=True),
        Fault.answer(429, "TooManyRequests", retry_after=2),
        Fault.hang(),
        Fault.duplicate(),
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_fault_neither_loses_nor_doubles_an_event(
    server: FakeApiServer, fault: Fault, number: int
) -> None:
    server.inject_at_write(number, fault)

    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await asyncio.sleep(60)
        wait(made)
        await asyncio.sleep(60)
        (event,) = server.all(EVENTS)
        assert event["series"]["count"] == 2
        assert made.dropped == 0
        running.cancel()

    run_virtual(main())


def test_a_refused_event_is_dropped_and_the_next_is_written(server: FakeApiServer) -> None:
    server.inject(Fault.answer(403, "Forbidden"))

    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        wait(made, "Another.")
        await expect_true(lambda: made.dropped and server.all(EVENTS), "a dropped event")
        assert [event["note"] for event in server.all(EVENTS)] == ["Another."]
        running.cancel()

    run_virtual(main())


def test_a_series_that_the_server_forgot_begins_again(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await expect_events(server)
        server.remove(EVENTS, server.all(EVENTS)[0]["metadata"]["name"], "a")
        wait(made)
        await expect_events(server)
        assert server.all(EVENTS)[0]["series"]["count"] == 2
        running.cancel()

    run_virtual(main())


def test_the_last_events_are_written_before_the_end(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for _ in range(5):
            wait(made)
        running.cancel()
        await made.flush()
        assert server.all(EVENTS)[0]["series"]["count"] == 5

    run_virtual(main())


def test_the_end_loses_no_count_of_an_event_that_is_being_written(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for _ in range(2):
            wait(made)
        await asyncio.sleep(REFRESH_SECONDS)
        server.inject(Fault.slow(1))
        wait(made)
        await asyncio.sleep(0.5)
        for _ in range(3):
            wait(made)
        await made.flush()
        await asyncio.sleep(1)
        running.cancel()
        (event,) = server.all(EVENTS)
        assert event["series"]["count"] == 6

    run_virtual(main())


def test_repetitions_before_a_lost_answer_is_known_are_counted(server: FakeApiServer) -> None:
    server.inject(Fault.reset(after=True))

    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await expect_events(server)
        for _ in range(4):
            wait(made)
        await asyncio.sleep(60)
        running.cancel()
        (event,) = server.all(EVENTS)
        assert event["series"]["count"] == 5

    run_virtual(main())


def test_an_end_without_a_server_does_not_hang(server: FakeApiServer) -> None:
    server.inject(Fault.hang(), times=100)

    async def main() -> None:
        made, running = recorder(server)
        running.cancel()
        wait(made)
        await made.flush(2)
        assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.1)

    run_virtual(main())


def test_events_of_cluster_scoped_objects_are_in_default_and_notes_are_cut(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        made, running = recorder(server)
        node = ObjectReference(api_version="v1", kind="Node", name="n1", uid="u3")
        made.emit(node, "Lost", "Watch", "ü" * 2000)
        await expect_events(server)
        (event,) = server.all(EVENTS, "default")
        assert len(event["note"].encode()) <= 1024
        assert event["note"].endswith("ü…")
        running.cancel()

    run_virtual(main())


def test_what_differs_in_any_respect_is_an_event_of_its_own(server: FakeApiServer) -> None:
    other = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p", uid="u2")

    async def main() -> None:
        made, running = recorder(server)
        for about, reason, action, kind, related in (
            (POD, "R", "A", WARNING, None),
            (POD, "S", "A", WARNING, None),
            (POD, "R", "B", WARNING, None),
            (POD, "R", "A", "Normal", None),
            (POD, "R", "A", WARNING, other),
            (other, "R", "A", WARNING, None),
        ):
            made.emit(about, reason, action, "n", type=kind, related=related)
        await expect_events(server, 6)
        running.cancel()

    run_virtual(main())


def test_repetitions_are_written_at_once_first_and_then_in_long_intervals(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for _ in range(int(REFRESH_SECONDS) + 20):
            wait(made)
            await asyncio.sleep(1)
        running.cancel()
        first, second, third = [each for each in server.requests if each.is_write]
        assert (first.verb, second.verb, third.verb) == ("create", "patch", "patch")
        assert [round(each.at) for each in (first, second, third)] == [0, 1, REFRESH_SECONDS + 1]
        assert "series" not in first.body
        assert [each.body["series"]["count"] for each in (second, third)] == [
            2,
            REFRESH_SECONDS + 1,
        ]

    run_virtual(main())


def test_each_object_has_a_budget_that_fills_again(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        for number in range(BURST + 3):
            wait(made, str(number))
        assert made.dropped == 3
        await asyncio.sleep(REFILL_SECONDS - 1)
        wait(made, "too early")
        assert made.dropped == 4
        await asyncio.sleep(1)
        wait(made, "one more")
        wait(made, "another")
        assert made.dropped == 5
        await asyncio.sleep(10 * BURST * REFILL_SECONDS)
        for number in range(BURST + 1):
            wait(made, f"again {number}")
        assert made.dropped == 6
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize(("status", "dropped"), [(400, 1), (428, 1), (429, 0), (500, 0)])
def test_only_what_is_refused_is_dropped_at_once(
    server: FakeApiServer, status: int, dropped: int
) -> None:
    server.inject(Fault.answer(status, "Reason"))

    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await asyncio.sleep(30)
        assert (made.dropped, len(server.all(EVENTS))) == (dropped, 1 - dropped)
        running.cancel()

    run_virtual(main())


def test_what_fails_too_often_is_dropped_and_counted_once(server: FakeApiServer) -> None:
    server.inject(Fault.answer(500, "InternalError"), times=1000)

    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await asyncio.sleep(3600)
        assert made.dropped == 1
        assert len(server.requests) == ATTEMPTS + 1
        wait(made)
        await asyncio.sleep(1)
        assert len(server.requests) == ATTEMPTS + 2
        running.cancel()

    run_virtual(main())


def test_an_instance_of_any_length_has_a_name_that_the_server_takes(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        made = EventRecorder(server.client(), "example.test/program", "i" * 200)
        wait(made)
        await made.flush()
        assert server.all(EVENTS)[0]["reportingInstance"] == "i" * 128

    run_virtual(main())


def test_an_end_writes_only_what_is_not_written(server: FakeApiServer) -> None:
    async def main() -> None:
        made, running = recorder(server)
        wait(made)
        await expect_events(server, 1)
        running.cancel()
        wait(made, "another")
        await made.flush()
        assert server.writes == 2
        await made.flush()
        assert server.writes == 2

    run_virtual(main())


@pytest.mark.parametrize(
    ("note", "limit", "cut"),
    [("abc", 3, "abc"), ("abcdef", 5, "ab…"), ("abc€", 6, "abc€"), ("a€€", 6, "a…")],
)
def test_a_note_is_cut_to_bytes_not_letters(note: str, limit: int, cut: str) -> None:
    assert truncate_note(note, limit) == cut


def test_of_too_many_events_the_oldest_is_forgotten(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "REMEMBERED", 2)

    async def main() -> None:
        made, running = recorder(server)
        for note in ("a", "b", "a", "c", "a", "b"):
            wait(made, note)
            await asyncio.sleep(1)
        # Repetitions of "a" are counted; "b" was the least recent one when "c" came.
        assert [each.verb for each in server.requests] == [
            *("create", "create", "patch", "create", "create")
        ]
        assert [each["note"] for each in server.all(EVENTS)].count("b") == 2
        running.cancel()

    run_virtual(main())


def test_an_object_whose_budget_was_forgotten_has_a_new_one(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "REMEMBERED", 1)
    other = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="q", uid="u2")

    async def main() -> None:
        made = EventRecorder(server.client(), "example.test/program", "program-0")
        for number in range(BURST + 1):
            wait(made, str(number))
        assert made.dropped == 1
        made.emit(other, "R", "A", "n")
        wait(made, "more")
        assert made.dropped == 1

    run_virtual(main())


def test_a_reference_names_the_object_and_its_state(server: FakeApiServer) -> None:
    metadata = {"name": "p", "namespace": "a", "uid": "u1", "resourceVersion": "7"}
    assert reference(PODS, {"metadata": metadata}) == ObjectReference(
        api_version="v1",
        kind="Pod",
        name="p",
        namespace="a",
        uid="u1",
        resource_version="7",
    )
