"""The same jobs through both tiers.

What is equal: each job is placed at the same time, on the same node, and beside the same jobs.
Three things differ between the tiers, which the first test leaves out or does not look at:

- A job that is placed on a vGPU which is being made waits for it; the core tier takes that vGPU
  for one that is there. So here a new vGPU takes no time.
- Where several jobs end at the same moment, the core tier retries the waiting ones after each,
  and the programs after all of them. So here all jobs are of different lengths.
- A job that arrives at the moment in which a vGPU becomes idle uses it in the core tier; the
  programs may give it back just then, and make another one of the same GPU. So vGPUs are not
  compared by name.
"""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

import samples
from kubeshare.simulator.cluster import equal_nodes
from kubeshare.simulator.control_tier.run import run_control
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.engine.simulation import Ended, Settings, StartTimes
from kubeshare.simulator.experiment import Experiment, Run, run
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.poisson import PoissonJobs
from simulator.builders import GPU

pytestmark = [pytest.mark.sampled, pytest.mark.slow]

JOBS = samples.count(whole=2000, sample=80)
TICK = 1e-4
"""The virtual clock has microseconds, which add up over the jobs that wait for each other."""
ALL_ALIKE = StartTimes(existing=0.25, new=0.25)


class DifferentJobs:
    """Poisson arrivals of jobs of different lengths."""

    def __init__(self, count: int, *, interarrival_s: float) -> None:
        self.count = count
        self._jobs = PoissonJobs(
            count=count,
            interarrival_s=interarrival_s,
            duration_s=40,
            demand_mean=0.3,
            demand_deviation=0.1,
        )

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed."""
        random = Random(seed)
        for job in self._jobs.draw(seed):
            yield msgspec.structs.replace(job, work_s=random.uniform(20, 60))


class Tier:
    """A run, and the jobs that finished, by name."""

    def __init__(self, run: Run, ended: dict[str, Ended]) -> None:
        self.summary, self.control, self.ended = run.summary, run.control, ended

    def beside(self, name: str) -> set[str]:
        """The jobs with which this one shared a GPU."""
        own = self.ended[name]
        return {
            other
            for other, each in self.ended.items()
            if set(own.devices) & set(each.devices)
            and each.placed_s + TICK < own.finished_s
            and own.placed_s + TICK < each.finished_s
        }


def both(
    policy: str,
    *,
    settings: Settings | None = None,
    control: ControlSettings | None = None,
) -> tuple[Tier, Tier]:
    """The core tier and the control tier, of a cluster that is short of GPUs."""
    found: list[dict[str, Ended]] = [{}, {}]
    experiment = Experiment(
        nodes=equal_nodes(4, 2, GPU),
        workload=DifferentJobs(JOBS, interarrival_s=1.6),
        settings=settings or Settings(),
    )

    def keep_in(which: int, ended: Ended) -> None:
        found[which][ended.job.name] = ended

    core = run(experiment, policy, 0, lambda ended: keep_in(0, ended))
    programs = run_control(
        control or ControlSettings(), experiment, policy, 0, lambda ended: keep_in(1, ended)
    )
    assert programs.control is not None
    assert not programs.control.errors
    return Tier(core, found[0]), Tier(programs, found[1])


@pytest.mark.parametrize(
    ("policy", "keep"), [("locality", 0.0), ("binpack", 5.0), ("topology", 0.0)]
)
def test_both_place_each_job_alike(policy: str, keep: float) -> None:
    core, control = both(policy, settings=Settings(start=ALL_ALIKE, keep_s=keep))
    assert core.ended.keys() == control.ended.keys()
    assert len(core.ended) == JOBS
    waited = 0
    for name, ours in core.ended.items():
        theirs = control.ended[name]
        assert (name, theirs.node, control.beside(name)) == (name, ours.node, core.beside(name))
        assert theirs.placed_s == pytest.approx(ours.placed_s, abs=TICK), name
        assert theirs.finished_s == pytest.approx(ours.finished_s, abs=TICK), name
        waited += ours.placed_s > ours.job.arrival_s + 1
    # Else the order of those that wait would not be compared.
    assert waited > JOBS / 20


def test_with_the_time_of_requests_the_means_agree() -> None:
    core, control = both("locality", control=ControlSettings(request_s=0.004))
    ours, theirs = core.summary, control.summary
    assert theirs.finished == ours.finished == JOBS
    assert theirs.makespan_s == pytest.approx(ours.makespan_s, rel=0.05)
    assert theirs.completion_mean_s == pytest.approx(ours.completion_mean_s, rel=0.1)
    assert theirs.used_fraction == pytest.approx(ours.used_fraction, rel=0.05)
    assert control.control is not None
    # Two requests: one completes the SharePod, one creates the pod.
    assert control.control.created.p50_s == pytest.approx(0.008, abs=TICK)


def test_jobs_go_on_while_the_programs_are_restarted() -> None:
    restarts = [("scheduler", 20.0), ("device-manager", 40.0), ("scheduler", 60.5)]
    core, control = both("locality", control=ControlSettings(restarts=restarts))
    assert control.summary.finished == core.summary.finished == JOBS
    assert control.summary.makespan_s == pytest.approx(core.summary.makespan_s, rel=0.05)
    assert control.control is not None
    assert control.control.restarts == {"scheduler": 2, "device-manager": 1}
    # Of a job that was placed while the device manager was away.
    assert control.control.created.max_s > 0.1
