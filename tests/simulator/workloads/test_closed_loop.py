"""A closed loop: who submits what when."""

from itertools import pairwise

import msgspec
import pytest

from kubeshare.simulator.cluster import build_cluster, equal_nodes
from kubeshare.simulator.engine.simulation import Ended, Settings, Simulation
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Run, no_progress, run
from kubeshare.simulator.systems import Setting, system
from kubeshare.simulator.workloads.closed_loop import ClosedLoopJobs
from simulator.builders import AT_ONCE, GPU


def workload(**changed: float) -> ClosedLoopJobs:
    numbers = {"count": 60, "duration_s": 10, "demand_mean": 0.3, "demand_deviation": 0.1}
    return ClosedLoopJobs(**({"users": 2, "think_s": 0.0} | numbers | changed))  # type: ignore[arg-type]


def played(of: ClosedLoopJobs, policy: str = "whole", gpus: int = 4) -> tuple[Run, list[Ended]]:
    ended: list[Ended] = []
    experiment = Experiment(
        nodes=equal_nodes(1, gpus, GPU), workload=of, settings=Settings(start=AT_ONCE)
    )
    return run(experiment, policy, 1, ended.append, no_progress), ended


def test_a_user_submits_the_next_job_when_the_last_has_ended() -> None:
    # Two users, and a GPU for each: two jobs run at any time, one after another.
    found, ended = played(workload())
    assert (found.summary.finished, found.summary.makespan_s) == (60, 300)
    assert [job.placed_s for job in ended] == [10 * (at // 2) for at in range(60)]


def test_more_users_than_gpus_wait_for_each_other_and_no_more_jobs_come() -> None:
    found, _ = played(workload(users=6), gpus=4)
    assert max(row["waiting_jobs"] for row in found.series) <= 2
    assert found.summary.used_fraction_of_active == pytest.approx(0.3, abs=0.05)
    assert found.summary.completion_mean_s == pytest.approx(15, rel=0.1)


def test_users_think_before_each_job() -> None:
    found, ended = played(workload(users=1, think_s=30))
    gaps = [after.job.arrival_s - before.finished_s for before, after in pairwise(ended)]
    assert min(gaps) > 0
    assert sum(gaps) / len(gaps) == pytest.approx(30, rel=0.3)
    assert found.summary.wait_mean_s == 0


def test_a_policy_changes_when_jobs_come_and_not_what_they_ask() -> None:
    of = workload(users=8)
    asked = [
        {job.job.name: job.job.need_micros for job in played(of, policy)[1]}
        for policy in ("whole", "locality")
    ]
    assert asked[0] == asked[1]
    assert len(asked[0]) == 60


def test_what_is_refused_does_not_end_the_loop_of_its_user() -> None:
    loop = workload(users=1, count=3).begin(0)
    (first,) = loop.first
    assert first.demand is not None
    large = msgspec.structs.replace(first, demand=msgspec.structs.replace(first.demand, count=2))
    cluster = build_cluster(equal_nodes(1, 1, GPU), owned=False)
    simulation = Simulation(cluster, system("locality", Setting(0)), Settings(start=AT_ONCE))
    assert list(simulation.run([large], loop.following)) == [1, 2, 3]
    assert (simulation.measured.refused.total(), simulation.measured.finished) == (1, 2)


@pytest.mark.parametrize("changed", [{"users": 0}, {"think_s": -1}, {"think_s": float("inf")}])
def test_numbers_out_of_range_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(SimulationError):
        workload(**changed)
