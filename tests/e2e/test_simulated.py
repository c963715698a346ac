"""The same jobs in the lab and in both tiers of the simulator: who waits, and who shares a GPU.

The lab is as fast as its machine, so what is compared is the order of things: a job arrives, or
one ends, and the next step waits until the lab is in the simulator's state at the end of that
step, at most for the deadline of the lab's tests. ``python -m bench.lab.tiers`` compares times.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import msgspec
import pytest

from e2e.space import REST, Space
from e2e.stage import Raw, Stage, eventually
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.control_tier.objects import sharepod_of
from kubeshare.simulator.control_tier.run import run_control
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.engine.simulation import Ended
from kubeshare.simulator.experiment import Experiment, run
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.poisson import PoissonJobs

pytestmark = pytest.mark.lab

JOBS: Final = 16
ENDS: Final = {11: 4, 12: 1, 16: 7, 19: 0}
"""Step → the number of the job that ends then; one arrives at each other step."""
STEPS: Final = JOBS + len(ENDS)
STEP_S: Final = 10.0
"""Of virtual time: more than anything takes there."""
FOREVER_S: Final = 100 * STEP_S * STEPS

State = frozenset[tuple[str, frozenset[str]]]
"""The node of each GPU in use, and the jobs on it."""


class Steps:
    """A workload: at each step a job arrives, or one ends."""

    count = JOBS

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed."""
        arrivals = [step for step in range(STEPS) if step not in ENDS]
        ends = {number: step for step, number in ENDS.items()}
        shares = PoissonJobs(
            count=JOBS, interarrival_s=1, duration_s=1, demand_mean=0.4, demand_deviation=0.1
        )
        for number, (step, job) in enumerate(zip(arrivals, shares.draw(seed), strict=True)):
            steps = ends[number] - step if number in ends else 0
            yield msgspec.structs.replace(
                job, arrival_s=step * STEP_S, work_s=steps * STEP_S or FOREVER_S
            )


def name_of(number: int) -> str:
    return f"job-{number:07}"


def nodes_of(stage: Stage) -> list[SimulatedNode]:
    """The lab's nodes, as the simulator has them."""
    found = []
    for gpunode in stage.items("/apis/kubeshare.nthu/v1/gpunodes"):
        devices = gpunode["spec"]["devices"]
        kind = FreeGpu(devices[0]["model"], devices[0]["memoryBytes"])
        name = gpunode["metadata"]["name"]
        found.append(SimulatedNode(name=name, gpus=len(devices), kind=kind))
    return found


def states(ended: Mapping[str, Ended]) -> list[State]:
    """The state at the end of each step."""
    found = []
    for step in range(STEPS):
        now = (step + 0.9) * STEP_S
        on: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        for name, each in ended.items():
            if each.placed_s <= now < each.finished_s:
                on.setdefault((each.node, each.devices), set()).add(name)
        found.append(frozenset((node, frozenset(jobs)) for (node, _), jobs in on.items()))
    return found


def state_of(stage: Stage) -> State:
    """The state of the lab; a vGPU that nobody holds is one of no jobs until it is gone."""
    return frozenset(
        (
            vgpu["spec"]["nodeName"],
            frozenset(holder["name"] for holder in vgpu.get("status", {}).get("holders", [])),
        )
        for vgpu in stage.vgpus()
    )


def until(stage: Stage, state: State, what: str) -> None:
    """Wait until the lab is in a state."""
    eventually(
        lambda: state_of(stage) == state,
        what,
        explain=lambda: f"the lab: {in_order(state_of(stage))}\nsimulated: {in_order(state)}",
    )


def in_order(state: State) -> list[tuple[str, list[str]]]:
    return sorted((node, sorted(jobs)) for node, jobs in state)


def test_the_lab_places_jobs_as_both_tiers_do(stage: Stage, space: Space) -> None:
    names = {job.uid: name_of(number) for number, job in enumerate(Steps().draw(0))}
    core: dict[str, Ended] = {}
    control: dict[str, Ended] = {}

    def keep(tier: dict[str, Ended], ended: Ended) -> None:
        tier[names[ended.job.uid]] = ended

    experiment = Experiment(nodes=nodes_of(stage), workload=Steps())
    run(experiment, "locality", 0, partial(keep, core))
    run_control(ControlSettings(), experiment, "locality", 0, partial(keep, control))
    expected = states(core)
    assert states(control) == expected
    waited = [name for name, each in core.items() if each.placed_s > each.job.arrival_s]
    assert len(waited) >= 3  # else no order of those that wait is compared

    jobs = iter(enumerate(Steps().draw(0)))
    for step, state in enumerate(expected):
        if step in ENDS:
            space.delete("sharepod", name_of(ENDS[step]))
        else:
            number, job = next(jobs)
            gpu: Raw = sharepod_of(job, number)["spec"]["gpu"]
            space.share(name_of(number), gpu, REST)
        until(stage, state, f"the simulator's state at step {step}")
