"""Random jobs: repeatable, and distributed as asked."""

import statistics

import pytest

from kubeshare.core.units import MICROS
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.workloads.poisson import PoissonJobs


def workload(**changed: float) -> PoissonJobs:
    numbers = {"interarrival_s": 2, "duration_s": 40, "demand_mean": 0.3, "demand_deviation": 0.1}
    return PoissonJobs(count=4000, **(numbers | changed))


def test_a_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(workload().draw(1)) == list(workload().draw(1))
    assert list(workload().draw(1)) != list(workload().draw(2))


def test_arrivals_and_demands_have_their_means() -> None:
    jobs = list(workload().draw(1))
    demands = [job.need_micros / MICROS for job in jobs]
    assert jobs[-1].arrival_s / len(jobs) == pytest.approx(2, rel=0.05)
    assert statistics.fmean(demands) == pytest.approx(0.3, rel=0.02)
    assert statistics.stdev(demands) == pytest.approx(0.1, rel=0.05)


def test_demands_are_clipped_to_what_a_gpu_has() -> None:
    demands = {job.need_micros for job in workload(demand_deviation=2).draw(1)}
    assert (min(demands), max(demands)) == (MICROS // 100, MICROS)
    assert all(demand % (MICROS // 100) == 0 for demand in demands)


@pytest.mark.parametrize(
    "changed",
    [
        {"interarrival_s": 0},
        {"interarrival_s": float("nan")},
        {"duration_s": -1},
        {"duration_s": float("inf")},
        {"demand_mean": 1.5},
        {"demand_mean": 0},
        {"demand_deviation": -1},
    ],
)
def test_numbers_out_of_range_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(SimulationError):
        workload(**changed)
