"""Conditions change only when there is news."""

from datetime import UTC, datetime, timedelta, timezone

from kubeshare.kube.conditions import (
    find_condition,
    is_true,
    micro_timestamp,
    set_condition,
    timestamp,
    to_raw,
)
from kubeshare.kube.meta import Condition

T0 = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
T1 = T0 + timedelta(minutes=1)
WAITING = Condition(type="Scheduled", status="False", reason="NoRoom", message="no room")


def test_a_first_observation_is_news() -> None:
    conditions, changed = set_condition((), WAITING, T0)
    assert changed
    assert conditions[0].last_transition_time == "2026-01-01T12:00:00Z"
    assert not is_true(conditions, "Scheduled")


def test_the_same_again_or_another_message_is_none() -> None:
    conditions, _ = set_condition((), WAITING, T0)
    again, changed = set_condition(conditions, WAITING, T1)
    assert (again, changed) == (conditions, False)
    other = Condition(type="Scheduled", status="False", reason="NoRoom", message="still no room")
    assert set_condition(conditions, other, T1) == (conditions, False)
    conditions_now, changed = set_condition(conditions, other, T1, message_counts=True)
    assert changed
    assert conditions_now[0].message == "still no room"


def test_another_reason_is_news_but_no_transition() -> None:
    conditions, _ = set_condition((), WAITING, T0)
    other = Condition(type="Scheduled", status="False", reason="Excluded")
    after, changed = set_condition(conditions, other, T1)
    assert changed
    assert after[0].last_transition_time == "2026-01-01T12:00:00Z"


def test_another_status_is_a_transition_and_the_rest_stays_in_place() -> None:
    ready = Condition(type="Ready", status="False", reason="Waiting")
    conditions, _ = set_condition((), WAITING, T0)
    conditions, _ = set_condition(conditions, ready, T0)
    bound = Condition(type="Scheduled", status="True", reason="Bound")
    after, changed = set_condition(conditions, bound, T1)
    assert changed
    assert [item.type for item in after] == ["Scheduled", "Ready"]
    assert after[0].last_transition_time == "2026-01-01T12:01:00Z"
    assert is_true(after, "Scheduled")
    assert find_condition(after, "Ready") == conditions[1]
    assert find_condition(after, "Other") is None


def test_another_generation_is_news() -> None:
    conditions, _ = set_condition((), WAITING, T0)
    seen = Condition(type="Scheduled", status="False", reason="NoRoom", observed_generation=2)
    after, changed = set_condition(conditions, seen, T1)
    assert changed
    assert after[0].observed_generation == 2


def test_as_written_a_condition_has_what_the_server_insists_on() -> None:
    conditions, _ = set_condition((), Condition(type="Ready", status="Unknown"), T0)
    assert to_raw(conditions) == [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "",
            "message": "",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
    ]


def test_times_are_written_in_utc() -> None:
    local = T0.astimezone(timezone(timedelta(hours=5)))
    assert timestamp(local) == "2026-01-01T12:00:00Z"
    assert micro_timestamp(local) == "2026-01-01T12:00:00.000005Z"


def test_a_reason_and_a_message_are_cut_to_what_the_api_server_takes() -> None:
    long = Condition(type="Scheduled", status="False", reason="R" * 1025, message="m" * 32769)
    [cut], changed = set_condition((), long, T0)
    assert (cut.reason, cut.message) == ("R" * 1024, "m" * 32768)
    assert changed
    assert set_condition((cut,), long, T1, message_counts=True) == ((cut,), False)
