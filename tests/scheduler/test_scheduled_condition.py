"""The condition is written when it changes, and only then."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fakes import manifests
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.meta import Condition, metadata_of
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.simulator.control import FakeApiServer, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PRESENT = Condition(
    type="Scheduled",
    status="False",
    reason="NoRoom",
    message="full",
    last_transition_time="2025-12-31T00:00:00Z",
)
OTHER = Condition(type="Ready", status="True", reason="PodReady")


def written(condition: Condition, share: dict[str, str] | None = None) -> Any:
    """What a write answers, and what it asked for."""
    server = FakeApiServer(0)
    raw = server.seed(SHAREPODS, manifests.sharepod("a", metadata={"namespace": "default"}))

    async def write() -> Any:
        status = ScheduledCondition(server.client("test"), lambda: NOW)
        return await status.write(SHAREPODS, metadata_of(raw), (OTHER, PRESENT), condition, share)

    answer = run_virtual(write())
    requests = [each for each in server.requests if each.is_write]
    return answer, requests


def test_what_is_as_it_was_is_not_written() -> None:
    assert written(PRESENT) == (None, [])


@pytest.mark.parametrize(
    ("fields", "since"),
    [
        ({"message": "still full"}, "2025-12-31T00:00:00Z"),
        ({"reason": "Invalid"}, "2025-12-31T00:00:00Z"),
        ({"status": "True", "reason": "Bound"}, "2026-01-01T00:00:00Z"),
    ],
)
def test_only_this_condition_is_written_and_its_time_is_that_of_its_status(
    fields: dict[str, Any], since: str
) -> None:
    known: dict[str, Any] = {"status": "False", "reason": "NoRoom", "message": "full"} | fields
    answer, [request] = written(Condition(type="Scheduled", **known))
    assert (request.resource, request.query["force"]) == ("sharepods/status", "true")
    assert request.query["fieldManager"] == "kubeshare-scheduler"
    assert request.body["metadata"]["uid"] == answer["metadata"]["uid"]
    assert request.body["status"].keys() == {"conditions"}
    [condition] = request.body["status"]["conditions"]
    assert condition == known | {"type": "Scheduled", "lastTransitionTime": since}


def test_the_share_is_written_with_it() -> None:
    share = {"request": "0.3"}
    answer, _ = written(Condition(type="Scheduled", status="True", reason="Bound"), share)
    assert answer["status"]["share"] == share


def test_an_object_that_is_gone_gets_no_condition() -> None:
    server = FakeApiServer(0)
    raw = server.seed(SHAREPODS, manifests.sharepod("a", metadata={"namespace": "default"}))
    server.remove(SHAREPODS, "a", "default")

    async def write() -> Any:
        status = ScheduledCondition(server.client("test"), lambda: NOW)
        return await status.write(SHAREPODS, metadata_of(raw), (), PRESENT)

    assert run_virtual(write()) is None
