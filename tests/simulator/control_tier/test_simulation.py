"""A few jobs through the real programs."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from kubeshare.core.gang import Gang
from kubeshare.simulator.cluster import equal_nodes
from kubeshare.simulator.control_tier.run import run_control
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.control_tier.simulation import ControlSimulation
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.simulation import Ended, Settings, StartTimes
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Run
from kubeshare.simulator.jobs import FOREVER, Job
from simulator.builders import AT_ONCE, GPU, job


class These:
    """The same jobs for each seed."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self.count = len(jobs)

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs; seeds make no difference."""
        del seed
        yield from self._jobs


def experiment(
    jobs: Sequence[Job], *, nodes: int = 1, gpus: int = 1, **settings: Any
) -> Experiment:
    return Experiment(
        nodes=equal_nodes(nodes, gpus, GPU),
        workload=These(jobs),
        settings=Settings(**({"start": AT_ONCE} | settings)),
    )


def play(
    *jobs: Job, control: ControlSettings | None = None, **more: Any
) -> tuple[Run, dict[str, Ended]]:
    ended: dict[str, Ended] = {}

    def on_end(each: Ended) -> None:
        ended[each.job.name] = each

    run = run_control(control or ControlSettings(), experiment(jobs, **more), "locality", 0, on_end)
    assert run.control is not None
    assert run.control.errors == []
    return run, ended


def test_jobs_share_a_gpu_by_their_requests() -> None:
    _, ended = play(job("a", work=10, request=0.2, need=1), job("b", work=10, request=0.6, need=1))
    assert ended["a"].devices == ended["b"].devices
    # Requests first, the rest in equal parts: .4 and .6, until the faster one has ended.
    assert ended["b"].finished_s > 10
    assert ended["a"].finished_s == pytest.approx(20, abs=1e-3)


def test_a_pod_starts_after_its_vgpu() -> None:
    start = StartTimes(native=0.1, existing=2, new=5)
    run, ended = play(job("a", work=10), job("b", arrival=8, work=10), start=start)
    assert ended["a"].finished_s == pytest.approx(15, abs=1e-3)
    assert ended["b"].finished_s == pytest.approx(20, abs=1e-3)
    assert run.control is not None
    assert run.control.ran.count == 2
    assert run.control.ran.max_s == pytest.approx(5, abs=1e-3)


def test_a_job_of_several_gpus_holds_a_share_of_each() -> None:
    _, ended = play(job("a", gpus=2), gpus=2)
    assert len(ended["a"].devices) == 2


def test_a_gang_starts_together() -> None:
    gang = Gang(name="g", min_available=2)
    _, ended = play(
        job("first", request=1, gang=gang), job("second", arrival=30, request=1, gang=gang), gpus=2
    )
    assert [round(each.placed_s, 3) for each in ended.values()] == [30, 30]


def test_what_can_never_be_placed_is_refused_and_what_never_ends_waits() -> None:
    run, ended = play(
        job("large", request=1, gpus=2),
        job("endless", arrival=1, request=0.8, work=FOREVER),
        job("waits", arrival=2),
        job("short", arrival=3, request=0.2),
    )
    numbers = run.summary
    assert (numbers.refused, numbers.running, numbers.waiting, numbers.finished) == (1, 1, 1, 1)
    assert sum(run.refused.values()) == 1
    assert set(ended) == {"short"}


def test_requests_are_counted_by_program() -> None:
    run, _ = play(job("a"), job("b", arrival=1, request=0.3))
    assert run.control is not None
    writes = run.control.writes
    assert writes["scheduler"]["patch vgpus/status"] == 2
    assert writes["scheduler"]["create vgpus"] == 1
    assert writes["device-manager"]["create pods"] == 3
    assert run.control.conflicts == {}


def test_programs_that_write_at_once_have_conflicts() -> None:
    slow = ControlSettings(request_s=0.05)
    alone = play(job("a"), control=slow)[1]["a"]
    # When the first one ends, the device manager gives its vGPU back, and the scheduler uses it.
    run, ended = play(job("a"), job("b", arrival=alone.finished_s + 0.02), control=slow)
    assert run.control is not None
    assert run.control.conflicts == {"scheduler": {"patch vgpus/status": 1}}
    assert ended["a"].devices != ended["b"].devices


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    jobs = [job(f"j{number}", arrival=number, request=0.3) for number in range(6)]
    assert play(*jobs)[0] == play(*jobs)[0]


def test_an_interrupted_run_keeps_what_it_has() -> None:
    def interrupted(jobs: int) -> None:
        del jobs
        raise KeyboardInterrupt

    run = run_control(
        ControlSettings(), experiment([job("a")]), "locality", 0, lambda _: None, interrupted
    )
    assert run.summary.partial
    assert run.summary.arrived == 1


def test_a_program_that_fails_is_noted_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run_program = ControlSimulation._run_program
    failures = iter([RuntimeError("no luck")])

    async def failing(self: ControlSimulation, name: str, client_name: str) -> None:
        if name == "scheduler" and (error := next(failures, None)):
            raise error
        await run_program(self, name, client_name)

    monkeypatch.setattr(ControlSimulation, "_run_program", failing)
    run = run_control(ControlSettings(), experiment([job("a")]), "locality", 0)
    assert run.summary.finished == 1
    assert run.control is not None
    assert run.control.errors == ["scheduler ended: RuntimeError('no luck')"]


def test_jobs_that_are_not_in_order_are_refused() -> None:
    with pytest.raises(SimulationError, match="job b arrives before"):
        play(job("a", arrival=5), job("b", arrival=4))


@pytest.mark.parametrize(
    ("changed", "policy", "words"),
    [
        ({}, "whole", "baseline"),
        ({"owned": True}, "locality", "owns"),
        ({"settings": Settings(keep_s=1e6)}, "locality", "604800"),
        (
            {"nodes": equal_nodes(1, 1, GPU, HostCapacity(cpu_millis=1, memory_bytes=1))},
            "locality",
            "CPU",
        ),
    ],
)
def test_what_only_the_core_tier_simulates_is_refused(
    changed: dict[str, Any], policy: str, words: str
) -> None:
    chosen = msgspec.structs.replace(experiment([job("a")]), **changed)
    with pytest.raises(SimulationError, match=words):
        run_control(ControlSettings(), chosen, policy, 0)
