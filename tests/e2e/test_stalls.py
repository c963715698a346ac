"""The record of stalls, without a lab."""

import json
from collections.abc import Iterator

import pytest

from e2e.stalls import Stalls
from e2e.tenants import created_at, written_at

LOST = {
    "error": "lease kubeshare-system/kubeshare-scheduler not renewed for 8 s: no answer",
    "event": "cannot go on",
    "timestamp": "1970-01-01T00:01:48.000000Z",
}


class Clock:
    """Seconds since the epoch, as the test sets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stalled(clock: Clock, seconds: float) -> Stalls:
    """A record with one gap of so many seconds from 100 on."""
    stalls = Stalls(lambda: None, clock)
    clock.now += seconds
    stalls.look()
    return stalls


def test_a_loss_in_a_stall_is_excused(clock: Clock) -> None:
    stalls = stalled(clock, 5.0)

    assert stalls.spans == [(100.0, 105.0)]
    again = LOST | {"timestamp": "1970-01-01T00:01:44Z"}
    assert stalls.excused("\n".join(map(json.dumps, (LOST, again)))) == 2


def test_a_loss_that_is_logged_twice_is_one(clock: Clock) -> None:
    assert stalled(clock, 5.0).excused(json.dumps(LOST) + "\n" + json.dumps(LOST)) == 1


def test_a_loss_without_a_stall_is_not(clock: Clock) -> None:
    assert stalled(clock, 1.0).excused(json.dumps(LOST)) == 0


def test_a_loss_at_another_time_is_not(clock: Clock) -> None:
    later = LOST | {"timestamp": "1970-01-01T00:02:00Z"}

    assert stalled(clock, 5.0).excused(json.dumps(later)) == 0


@pytest.mark.parametrize(
    "line", ["", "Traceback", "[]", "{}", json.dumps(LOST | {"error": "held by another"})]
)
def test_any_other_end_is_not(clock: Clock, line: str) -> None:
    assert stalled(clock, 5.0).excused(line) == 0


def test_no_answer_is_a_stall_until_there_is_one(clock: Clock) -> None:
    answers: Iterator[bool] = iter([False, False, True])

    def ask() -> None:
        if not next(answers):
            raise ConnectionError

    stalls = Stalls(ask, clock)
    for _ in range(3):
        clock.now += 2.0
        stalls.look()

    assert stalls.spans == [(100.0, 106.0)]
    assert stalls.answers == 1


@pytest.mark.parametrize(
    ("began", "ended", "seconds"),
    [(90.0, 110.0, 5.0), (90.0, 102.0, 2.0), (104.0, 110.0, 1.0), (90.0, 99.0, 0.0)],
)
def test_what_of_a_time_was_a_stall(
    clock: Clock, began: float, ended: float, seconds: float
) -> None:
    assert stalled(clock, 5.0).seconds_between(began, ended) == seconds


def test_the_time_of_a_condition_is_that_of_its_writer() -> None:
    def wrote(time: str, kind: str) -> dict[str, object]:
        return {
            "time": time,
            "fieldsV1": {"f:status": {"f:conditions": {f'k:{{"type":"{kind}"}}': {".": {}}}}},
        }

    created = {"time": "1970-01-01T00:00:01Z", "fieldsV1": {"f:spec": {}}}
    entries = [
        created,
        wrote("1970-01-01T00:00:03Z", "Scheduled"),
        wrote("1970-01-01T00:00:09Z", "Ready"),
    ]
    sharepod = {"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z", "managedFields": entries}}
    assert written_at(sharepod, "Scheduled") - created_at(sharepod) == 2
    with pytest.raises(AssertionError, match="nobody has written the condition Allocated"):
        written_at(sharepod, "Allocated")
