"""Series are bounded and lose nothing; estimates have the right width."""

import pytest

from kubeshare.simulator.measurements import MAX_POINTS, Histogram, Measurements, Series, estimate


def test_a_long_series_has_few_points_and_keeps_its_integral() -> None:
    series = Series()
    for at in range(1, 5001):
        series.advance(at * 1.5, (at % 7, 0, 1, 0))
    rows = series.rows()
    assert len(rows) <= MAX_POINTS
    assert series.step_s == 16
    last = 7500 - rows[-1]["time_s"]
    lengths = [16.0] * (len(rows) - 1) + [last]
    means = [row["used_gpus"] for row in rows]
    total = sum(mean * length for mean, length in zip(means, lengths, strict=True))
    expected = sum(at % 7 * 1.5 for at in range(1, 5001))
    assert total == pytest.approx(expected)
    assert series.integrals == [pytest.approx(expected), 0, 7500, 0]


def test_one_long_step_fills_all_points() -> None:
    series = Series()
    series.advance(1e6, (2, 0, 0, 0))
    assert {row["used_gpus"] for row in series.rows()} == {2}
    assert MAX_POINTS / 2 < len(series.rows()) <= MAX_POINTS


def test_time_that_does_not_pass_counts_for_nothing() -> None:
    series = Series()
    series.advance(1, (1, 1, 1, 1))
    series.advance(1, (9, 9, 9, 9))
    assert series.integrals == [1, 1, 1, 1]


def test_an_estimate_has_the_interval_of_students_t() -> None:
    ten = estimate([float(value) for value in range(10)])
    # The mean 4.5, the deviation 3.0277, t(9) = 2.262.
    assert ten.mean == 4.5
    assert ten.half_width == pytest.approx(2.262 * 3.0277 / 10**0.5, rel=1e-4)
    assert estimate([3.0]).half_width is None
    assert estimate([3.0] * 50).half_width == 0


def test_a_run_of_nothing_has_numbers() -> None:
    summary = Measurements().summary(4, 0, 0)
    assert (summary.jobs_per_minute, summary.wait_p99_s, summary.used_fraction) == (0, 0, 0)


def test_percentiles_of_a_histogram_are_within_one_percent() -> None:
    histogram = Histogram()
    for millis in range(1, 10_001):
        histogram.add(millis / 1000)
    assert histogram.count == 10_000
    assert histogram.percentile(50) == pytest.approx(5, rel=0.01)
    assert histogram.percentile(99) == pytest.approx(9.9, rel=0.01)
    assert Histogram().percentile(99) == 0
