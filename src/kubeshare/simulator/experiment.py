"""Runs one workload on one cluster under several systems and seeds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from kubeshare.simulator.cluster import SimulatedNode, build_cluster, gpu_count
from kubeshare.simulator.control_numbers import ControlNumbers
from kubeshare.simulator.engine.fragments import Fragments
from kubeshare.simulator.engine.simulation import Following, OnEnd, Settings, Simulation
from kubeshare.simulator.interruption import stopped_by_interruption
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.measurements import Estimate, Summary, estimate
from kubeshare.simulator.systems import Setting, system
from kubeshare.simulator.workloads.closed_loop import ClosedLoopJobs

_NUMBERS: Final = tuple(name for name in Summary.__struct_fields__ if name != "partial")


class Workload(Protocol):
    """Jobs, drawn from a seed or always the same."""

    @property
    def count(self) -> int:
        """How many jobs there are."""

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed, in the order of their arrival."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs have in common.

    Attributes:
        nodes: the cluster.
        workload: the jobs.
        settings: the rest.
        owned: whether all GPUs are vGPUs from the beginning.
    """

    nodes: Sequence[SimulatedNode]
    workload: Workload
    settings: Settings = Settings()
    owned: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run.

    Attributes:
        policy, seed: of the run.
        summary: its numbers.
        refused: why jobs were refused → how many.
        series: the gauges over time.
        control: what only the control tier measures.
        bound: the part of all GPUs that no placement exceeds, as far as the policy knows.
        fragments: the fragmentation when jobs had asked for 0.5, 0.9 and 1.3 times all GPUs, as
            far as no job had ended by then.
    """

    policy: str
    seed: int
    summary: Summary
    refused: Mapping[str, int]
    series: Sequence[Mapping[str, float]]
    control: ControlNumbers | None = None
    bound: float = 1.0
    fragments: Sequence[Fragments] = ()


class Progress(Protocol):
    """Shows how far a run is."""

    def __call__(self, jobs: int, /) -> None:
        """So many more jobs have arrived."""


def no_progress(jobs: int, /) -> None:
    """Show nothing."""


def run(
    experiment: Experiment,
    policy: str,
    seed: int,
    on_end: OnEnd = lambda _: None,
    progress: Progress = no_progress,
) -> Run:
    """One run, which ends early at an interruption from the keyboard, and says so.

    Raises:
        SimulationError: the workload is invalid, or the policy failed.
    """
    setting = Setting(seed, experiment.nodes, experiment.workload.draw)
    chosen = system(policy, setting)
    cluster = build_cluster(experiment.nodes, owned=experiment.owned or chosen.owned)
    simulation = Simulation(cluster, chosen, experiment.settings, on_end, seed)
    try:
        with stopped_by_interruption(simulation.stop):
            for _ in simulation.run(*_jobs(experiment.workload, seed)):
                progress(1)
    except KeyboardInterrupt:
        simulation.stop()
    measured = simulation.measured
    return Run(
        policy=policy,
        seed=seed,
        summary=measured.summary(
            gpu_count(experiment.nodes), simulation.running, simulation.waiting
        ),
        refused=dict(measured.refused),
        series=measured.series.rows(),
        bound=chosen.bound,
        fragments=simulation.fragments.points,
    )


def _jobs(workload: Workload, seed: int) -> tuple[Iterable[Job], Following | None]:
    """The jobs whose arrival is known, and what follows those that end."""
    if isinstance(workload, ClosedLoopJobs):
        loop = workload.begin(seed)
        return loop.first, loop.following
    return workload.draw(seed), None


def estimates(runs: Sequence[Run]) -> dict[str, Estimate]:
    """The estimate of each number of a summary over the runs of one policy.

    Partial runs do not count: their numbers are those of other workloads. Empty if all are.
    """
    whole = [each.summary for each in runs if not each.summary.partial]
    if not whole:
        return {}
    return {name: estimate([float(getattr(each, name)) for each in whole]) for name in _NUMBERS}


def differences(first: Sequence[Run], second: Sequence[Run]) -> dict[str, Estimate]:
    """The estimate of what each number of the second policy's runs is more, seed by seed.

    The jobs of a seed are the same under both, so what only the jobs change cancels out.

    Args:
        first: the runs of a policy; partial ones, and seeds that only one has, do not count.
        second: those of another.
    """
    whole = {run.seed: run for run in first if not run.summary.partial}
    pairs = [
        (whole[run.seed].summary, run.summary)
        for run in second
        if run.seed in whole and not run.summary.partial
    ]
    if not pairs:
        return {}
    return {
        name: estimate([float(getattr(more, name) - getattr(less, name)) for less, more in pairs])
        for name in _NUMBERS
    }
