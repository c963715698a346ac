"""Runs one workload through the control tier."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from kubeshare.simulator.cluster import gpu_count
from kubeshare.simulator.control import run_virtual
from kubeshare.simulator.control_tier.measurements import ControlMeasurements
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.control_tier.simulation import ControlSimulation
from kubeshare.simulator.engine.simulation import OnEnd
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Progress, Run, no_progress
from kubeshare.simulator.systems import BASELINES, check_name
from kubeshare.simulator.workloads.closed_loop import ClosedLoopJobs

MAX_KEEP_S: Final = 7 * 24 * 3600.0
"""The most that the configuration of the pool takes."""


def run_control(  # noqa: PLR0913, PLR0917 - those of the core tier, after the settings
    settings: ControlSettings,
    experiment: Experiment,
    policy: str,
    seed: int,
    on_end: OnEnd = lambda _: None,
    progress: Progress = no_progress,
) -> Run:
    """One run, which ends early at an interruption from the keyboard, and says so.

    Raises:
        SimulationError: what is asked for is only in the core tier, or the workload is invalid.
    """
    check_control(experiment, policy)
    simulation = ControlSimulation(
        experiment.nodes, policy, experiment.settings, settings, seed=seed, on_end=on_end
    )
    jobs = experiment.workload.draw(seed)
    try:
        with _repeatable(seed), _logs_to(simulation.control):
            run_virtual(simulation.run(jobs, progress), end=None)
    except KeyboardInterrupt:
        simulation.measured.interrupted = True
    measured = simulation.measured
    return Run(
        policy=policy,
        seed=seed,
        summary=measured.summary(
            gpu_count(experiment.nodes), simulation.running, simulation.waiting
        ),
        refused=dict(measured.refused),
        series=measured.series.rows(),
        control=simulation.control.numbers(),
    )


def check_control(experiment: Experiment, policy: str) -> None:
    """Refuse unknown policies, and what only the core tier simulates.

    Raises:
        SimulationError: it is one of them.
    """
    if policy in BASELINES:
        raise SimulationError(f"{policy} is a baseline, which --tier control does not simulate")
    check_name(policy)
    if isinstance(experiment.workload, ClosedLoopJobs):
        raise SimulationError("--tier control does not simulate a closed loop (--users)")
    if experiment.owned:
        raise SimulationError("--tier control does not simulate nodes that KubeShare owns")
    if any(node.host is not None for node in experiment.nodes):
        raise SimulationError("--tier control does not simulate CPU and memory of nodes")
    if experiment.settings.keep_s > MAX_KEEP_S:
        raise SimulationError(
            f"--keep: the configuration of KubeShare takes at most {MAX_KEEP_S:g} s"
        )


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """Draw the jitter of the programs from a seed."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _logs_to(measurements: ControlMeasurements) -> Iterator[None]:
    """Keep the exceptions that programs log, and print nothing."""

    def take(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if error := line.get("exc_info"):
            measurements.failed(f"{line['event']}: {error!r}")
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    processors.insert(0, take)
    try:
        yield
    finally:
        processors.remove(take)
