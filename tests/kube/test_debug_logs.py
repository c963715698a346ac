"""At the severity debug a program logs its reconciles, requests and lists; else it does not."""

import json
import subprocess
import sys
from typing import Any, Final

import pytest
import structlog

from deadlines import DEADLINE_S
from kubeshare.kube.logs import configure_logging, debugging

PROGRAM: Final = """
import asyncio, sys
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.controller.controller import Controller, InBackground, RequeueAfter, own_key
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.logs import configure_logging
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import FakeApiServer, run_virtual

if len(sys.argv) > 1:
    configure_logging(sys.argv[1], json=True)

async def main():
    client = FakeApiServer().client()
    metadata = {"namespace": "a", "name": "p"}
    await client.create(PODS, {"metadata": metadata, "spec": {"hidden": "value"}})
    outcomes = [ConflictError("stale", status=409), RequeueAfter(30.0), InBackground(rest)]

    async def reconcile(key):
        await asyncio.sleep(0.25)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    reflector = Reflector(client, PODS)
    controller = Controller("pods", reconcile)
    controller.watch(reflector, own_key)
    tasks = [asyncio.create_task(part.run()) for part in (reflector, controller)]
    await asyncio.sleep(40)
    await client.merge_patch(PODS, "p", {"metadata": {"labels": {"hidden": "value"}}}, "a")
    for task in tasks:
        task.cancel()

async def rest():
    await asyncio.sleep(0.5)

run_virtual(main())
"""


def lines(*level: str) -> list[dict[str, Any]]:
    """What the program logs."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *level],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "hidden" not in done.stdout + done.stderr, "a body was logged"
    if not level:
        assert "reconcile begins" not in done.stdout
        assert "API server answered" not in done.stdout
        return []
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.fixture(scope="module")
def debug() -> list[dict[str, Any]]:
    return lines("debug")


def test_each_reconcile_says_how_it_ended_after_how_long_and_when_the_next_one_is(
    debug: list[dict[str, Any]],
) -> None:
    begun = [line for line in debug if line["event"] == "reconcile begins"]
    ended = [line for line in debug if line["event"] == "reconcile ends"]
    assert [line["failures"] for line in begun] == [0, 1, 0]
    assert [line["reconcile_id"] for line in begun] == [line["reconcile_id"] for line in ended]
    assert {(line["controller"], line["object"]) for line in begun + ended} == {("pods", "a/p")}
    assert [line["result"] for line in ended] == ["conflict", "requeue_after", "success"]
    assert [line["duration_seconds"] for line in ended] == pytest.approx([0.25, 0.25, 0.5])
    assert [line["requeue_seconds"] for line in ended] == [pytest.approx(0.005), 30.0, None]


def test_each_request_says_what_the_api_server_answered(debug: list[dict[str, Any]]) -> None:
    answered = [line for line in debug if line["event"] == "API server answered"]
    assert [(line["request"], line["status"]) for line in answered] == [
        ("create pods a", 201),
        ("list pods", 200),
        ("watch pods", 200),
        ("patch pods a/p", 200),
    ]
    assert all(line["seconds"] >= 0 for line in answered)


def test_a_list_says_how_many_objects_there_are(debug: list[dict[str, Any]]) -> None:
    [listed] = [line for line in debug if line["event"] == "listed"]
    assert (listed["resource"], listed["objects"], listed["level"]) == ("pods", 1, "debug")


def test_at_info_only_failures_are_logged() -> None:
    assert [line["event"] for line in lines("info")] == ["decided from an old state, trying again"]


def test_a_program_that_configures_no_logs_is_not_flooded() -> None:
    assert lines() == []


@pytest.mark.usefixtures("logs_as_before")
def test_nobody_asked_for_details_where_only_the_defaults_were_put_back() -> None:
    """As a program does that uses the client and configures structlog by itself."""
    structlog.configure(**structlog.get_config())
    assert not debugging()
    configure_logging("info", json=True)
    assert not debugging()
    configure_logging("debug", json=True)
    assert debugging()
