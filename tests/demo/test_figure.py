"""The figure's targets and its arithmetic."""

import pytest

from kubeshare.demo.figure import JOBS, STAGES, targets
from kubeshare.demo.timeline import Sample, StageResult, shares, sliding
from kubeshare.dialects.sharepod import demand_of

SECOND = 1_000_000_000


def test_the_targets_are_those_that_the_requests_lead_to() -> None:
    assert [targets(stage) for stage in STAGES] == [
        {"a": 0.6},
        {"a": 0.5, "b": 0.5},
        {"a": 0.3, "b": 0.4, "c": 0.3},
        {"a": 0.5, "b": 0.5},
        {"a": 0.6},
    ]


def test_every_stage_is_reached_by_one_change() -> None:
    running: set[str] = set()
    for stage in STAGES:
        running = (running | {stage.comes}) - {stage.goes, ""}
        assert running == set(stage.running)


def test_the_jobs_are_sharepods_that_the_dialect_reads() -> None:
    demands = [demand_of(job.manifest("default", "image")) for job in JOBS]

    assert [demand.request_micros for demand in demands if demand] == [300_000, 400_000, 300_000]
    assert {demand.affinity for demand in demands if demand} == {"figure-6"}


def test_a_share_is_busy_time_over_elapsed_time() -> None:
    first, last = Sample(SECOND, {"a": 0}), Sample(11 * SECOND, {"a": 6 * SECOND, "b": SECOND})

    assert shares(first, last, ("a", "b", "c")) == {"a": 0.6, "b": 0.1, "c": 0.0}


def test_no_time_between_samples_is_no_share() -> None:
    sample = Sample(SECOND, {})

    with pytest.raises(ValueError, match="two samples"):
        shares(sample, sample, ("a",))


def test_a_sliding_window_forgets_what_lies_before_it() -> None:
    samples = [Sample(s * SECOND, {"a": min(s, 5) * SECOND}) for s in range(11)]

    line = dict(sliding(samples, ("a",), 2 * SECOND)["a"])

    assert line[5 * SECOND] == 1.0
    assert line[6 * SECOND] == 0.5


def test_a_jobs_line_is_as_long_as_its_work() -> None:
    samples = [Sample(s * SECOND, {"a": min(s, 5) * SECOND}) for s in range(11)]

    lines = sliding(samples, ("a", "b"), SECOND)

    assert [at // SECOND for at, _ in lines["a"]] == [1, 2, 3, 4, 5]
    assert lines["b"] == []


def test_a_stage_knows_its_worst_miss() -> None:
    stage = StageResult("x", 0, 1, {"a": 0.5, "b": 0.5}, {"a": 0.51, "b": 0.46}, {})

    assert stage.worst == pytest.approx(0.04)
