"""Numbers of the bench: median, spread, goal; and what is not counted."""

import json
from typing import Any

import pytest
from bench.report import (
    NO_GOAL,
    Goal,
    Met,
    at_least,
    at_most,
    interleave,
    less_than,
    percentile,
    print_machine,
    rate_at_least,
    report,
    report_runs,
    sample,
    summarize,
    time_at_most,
)

from bench import cpu_time


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().out.splitlines()
    entry: dict[str, Any] = json.loads(line)
    return entry


def test_a_number_has_the_median_and_the_spread_of_its_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report("decision, µs", at_most(20), [30.0, 10.0, 12.0], p99=40) is True

    assert printed(capsys) == {
        "what": "decision, µs",
        "goal": "<= 20",
        "value": 12.0,
        "low": 10.0,
        "high": 30.0,
        "runs": 3,
        "better": "lower",
        "met": True,
        "p99": 40,
    }


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (at_most(2), 2, True),
        (at_most(2), 2.1, False),
        (less_than(2), 2, False),
        (at_least(2), 2, True),
        (at_least(2), 1.9, False),
        (NO_GOAL, 2, None),
    ],
)
def test_a_goal_has_a_direction_and_a_bound(goal: Goal, value: float, met: Met) -> None:
    assert report("number", goal, value) is met


@pytest.mark.parametrize(
    ("reference_ms", "most", "least"),
    [(7, 40, 20_000), (14, 80, 10_000), (3.5, 40, 20_000)],
)
def test_a_goal_in_time_grows_with_what_a_slower_machine_takes(
    monkeypatch: pytest.MonkeyPatch, reference_ms: float, most: float, least: float
) -> None:
    monkeypatch.setattr(cpu_time, "reference_seconds", lambda rounds: [reference_ms / 1e3] * rounds)

    time, rate = time_at_most(40), rate_at_least(20_000)

    assert time.text == f"<= {most} here, 40 quick"
    assert report("time", time, most) is True
    assert report("time", time_at_most(40), most * 1.01) is False
    assert rate.text == f">= {least} here, 20000 quick"
    assert report("rate", rate, least) is True
    assert report("rate", rate, least * 0.99) is False


def test_a_number_without_a_goal_is_not_counted_as_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert summarize([True, None, True]) == 0
    assert printed(capsys) == {"goals": 2, "met": 2, "no_goal": 1}


def test_a_missed_goal_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert summarize([True, False, None]) == 1
    assert printed(capsys) == {"goals": 2, "met": 1, "no_goal": 1}


def test_the_first_line_says_processor_and_commit(capsys: pytest.CaptureFixture[str]) -> None:
    print_machine()

    machine = printed(capsys)["machine"]
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert {"commit", "uncommitted_changes", "python", "kernel", "started"} <= machine.keys()


def test_both_sides_run_in_turn_and_either_goes_first() -> None:
    order: list[str] = []

    def side(name: str) -> int:
        order.append(name)
        return len(order)

    ones, others = interleave(3, lambda: side("one"), lambda: side("other"))

    assert order == ["one", "other", "other", "one", "one", "other"]
    assert (ones, others) == ([1, 4, 5], [2, 3, 6])


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3, 1, 2], 99) == 3
    assert percentile(list(range(100)), 50) == 50


def test_whole_runs_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [[sample("rate", at_least(10), rate, pods=int(rate))] for rate in (9.0, 12.0, 15.0)]

    assert report_runs(runs) == [True]

    entry = printed(capsys)
    assert (entry["value"], entry["low"], entry["high"], entry["runs"]) == (12.0, 9.0, 15.0, 3)
    assert entry["each"] == [{"pods": 9}, {"pods": 12}, {"pods": 15}]
