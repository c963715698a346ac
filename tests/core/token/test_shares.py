"""The shares that come out when jobs with always work wait for one GPU's token."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.token.simulation import GPU, MS, SECOND, Simulation
from kubeshare.core.token import DECAYED_AVERAGE, SLIDING_WINDOW, Measure


def windows(simulation: Simulation, number: int = 3) -> list[dict[str, float]]:
    simulation.run(5 * SECOND)
    return [simulation.shares(10 * SECOND) for _ in range(number)]


@pytest.mark.parametrize("seed", range(4))
def test_the_stages_of_figure_6_come_out_at_their_targets(seed: int) -> None:
    simulation = Simulation(seed)

    simulation.join("a", 0.3, 0.6)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.6}, abs=0.01)
    simulation.join("b", 0.4, 0.6)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.01)
    simulation.join("c", 0.3, 0.5)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.3, "b": 0.4, "c": 0.3}, abs=0.01)
        assert sum(shares.values()) > 0.98
    simulation.leave("c")
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.01)


@pytest.mark.parametrize("limit", [0.001, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9, 0.99])
def test_a_job_alone_gets_its_limit_exactly(limit: float) -> None:
    simulation = Simulation()
    simulation.join("a", 0, limit, drain_ms=0)
    simulation.run(5 * SECOND)

    assert simulation.shares(20 * SECOND)["a"] == pytest.approx(limit, abs=0.002)


def test_hard_partitions_get_their_parts() -> None:
    simulation = Simulation()
    for name, share in (("a", 0.3), ("b", 0.3), ("c", 0.4)):
        simulation.join(name, share, share)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)
    assert shares == pytest.approx({"a": 0.3, "b": 0.3, "c": 0.4}, abs=0.01)


def test_a_job_without_a_guarantee_takes_what_is_left() -> None:
    simulation = Simulation()
    simulation.join("guaranteed", 0.6, 0.6)
    simulation.join("scavenger", 0, 1)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)
    assert shares == pytest.approx({"guaranteed": 0.6, "scavenger": 0.4}, abs=0.01)


def test_uneven_requests_come_out_as_they_are() -> None:
    """Measured by an average alone the large one gets .78: it is served when it crosses a line."""
    simulation = Simulation()
    for name, request in (("large", 0.8), ("small", 0.1), ("other", 0.1)):
        simulation.join(name, request, 1)
    simulation.run(5 * SECOND)

    shares = simulation.shares(30 * SECOND)
    assert shares == pytest.approx({"large": 0.8, "small": 0.1, "other": 0.1}, abs=0.005)


def test_a_long_kernels_debt_is_paid_back() -> None:
    simulation = Simulation()
    simulation.join("long", 0.3, 1).overrun_ns = lambda: 2 * SECOND
    simulation.join("short", 0.7, 1)
    simulation.run(10 * SECOND)

    shares = simulation.shares(60 * SECOND)
    assert shares["short"] == pytest.approx(0.7, abs=0.04)


@pytest.mark.parametrize("kernel_s", [0.3, 1, 4, 12, 15])
def test_requests_are_kept_beside_kernels_of_up_to_fifteen_seconds(kernel_s: float) -> None:
    simulation = Simulation()
    simulation.join("a", 0.5, 1)
    simulation.join("b", 0.3, 1)
    simulation.run(5 * SECOND)
    simulation.join("long", 0.2, 1).overrun_ns = lambda: round(kernel_s * SECOND)

    shares = simulation.shares(60 * SECOND)

    assert shares == pytest.approx({"a": 0.5, "b": 0.3, "long": 0.2}, abs=0.06)
    assert shares["a"] >= 0.47
    assert shares["b"] >= 0.27
    assert simulation.arbiter.tally("long", GPU).bypasses == 0


@pytest.mark.parametrize("number", [2, 8, 32])
def test_a_newcomer_is_served_next(number: int) -> None:
    simulation = Simulation()
    for index in range(number):
        simulation.join(str(index), 0.9 / number, 1)
    simulation.run(5 * SECOND)

    newcomer = simulation.join("new", 0.1, 1)
    simulation.run(150 * MS)

    assert 0 < newcomer.longest_wait_ns <= 150 * MS, "it was let in at once, whatever it waits now"


@pytest.mark.parametrize("requests", [[0.8, 0.1, 0.1], [0.49, 0.49, 0.02], [0.125] * 8])
def test_nobody_waits_longer_than_a_second_and_a_half(
    requests: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    simulation = Simulation()
    for index, request in enumerate(requests):
        simulation.join(str(index), request, 1)
    simulation.run(5 * SECOND)
    for job in simulation.jobs.values():
        job.longest_wait_ns = 0

    simulation.run(60 * SECOND)

    with capsys.disabled():
        sys.stdout.write(f" {simulation.longest_wait_ns() / 1e6:.0f} ms")
    assert simulation.longest_wait_ns() <= 1_500 * MS


def test_the_papers_window_gives_the_same_shares_over_ten_seconds() -> None:
    simulation = Simulation(measure=SLIDING_WINDOW)
    for name, request, limit in (("a", 0.3, 0.6), ("b", 0.4, 0.6), ("c", 0.3, 0.5)):
        simulation.join(name, request, limit)
    simulation.run(20 * SECOND)

    shares = simulation.shares(30 * SECOND)
    assert shares == pytest.approx({"a": 0.3, "b": 0.4, "c": 0.3}, abs=0.01)


@pytest.mark.parametrize(("measure", "served_ms"), [(DECAYED_AVERAGE, 400), (SLIDING_WINDOW, 5100)])
def test_a_newcomer_storms_in_only_by_the_papers_window(measure: Measure, served_ms: int) -> None:
    """For how long it is served without a pause, beside one that had the GPU alone."""
    simulation = Simulation(measure=measure)
    simulation.join("old", 0.3, 1)
    simulation.run(20 * SECOND)
    newcomer = simulation.join("new", 0.3, 1)
    simulation.run(10 * SECOND)

    longest = max(end - begin for _, begin, end in newcomer.uses) / MS
    assert longest == pytest.approx(served_ms, rel=0.1)


shares = st.lists(st.integers(5, 100), min_size=1, max_size=5).filter(lambda p: sum(p) <= 100)


@settings(max_examples=40, deadline=None)
@given(shares, st.lists(st.integers(0, 100), min_size=5, max_size=5), st.integers(0, 99))
def test_any_mix_is_served_within_its_bounds(
    requests: list[int], above: list[int], seed: int
) -> None:
    simulation = Simulation(seed)
    limits = {}
    for index, (request, more) in enumerate(zip(requests, above, strict=False)):
        limits[str(index)] = min(100, request + more) / 100
        simulation.join(str(index), request / 100, limits[str(index)])
    simulation.run(6 * SECOND)

    shares = simulation.shares(20 * SECOND)

    for index, request in enumerate(requests):
        assert shares[str(index)] >= request / 100 - 0.03
    for name, share in shares.items():
        assert share <= limits[name] + 0.01
    assert sum(shares.values()) >= min(1, sum(limits.values())) - 0.03
    assert max(job.longest_wait_ns for job in simulation.jobs.values()) < 8 * SECOND
