"""Figure 6 without Kubernetes: share error in each stage, over 10 s, by the GPU's own log."""

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from bench.node import machine
from bench.report import Met, at_least, at_most, report

from kubeshare import fakegpu
from kubeshare.demo.figure import JOBS, STAGES, Stage, targets
from kubeshare.demo.timeline import Sample, shares

_PROFILE = "V100x1"
_SETTLE_SECONDS = 6.0
_WINDOW_SECONDS = 10.0
_WINDOWS = 3
_ERROR_GOAL = 0.02
_TOTAL_GOAL = 0.98


def run() -> list[Met]:
    """Two lines a stage: the worst share's error, and the total where limits allow it."""
    with machine.run_folder() as environment, ExitStack() as at_the_end:
        running: dict[str, subprocess.Popen[str]] = {}
        results: list[Met] = []
        for stage in STAGES:
            if stage.comes:
                running[stage.comes] = _start(stage.comes, environment)
                at_the_end.callback(running[stage.comes].kill)
            if stage.goes:
                leaver = running.pop(stage.goes)
                leaver.terminate()
                leaver.wait(timeout=10)
            pids = {process.pid: name for name, process in running.items()}
            # Where `kubeshare run` keeps the fake GPUs of a profile.
            state = Path(environment["KUBESHARE_RUN"]) / f"fakegpu-{_PROFILE}"
            results += _measure(stage, pids, state)
        return results


def _start(name: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    job = next(job for job in JOBS if job.name == name)
    share = machine.kubeshare_run(job.request, job.limit, _PROFILE, job.memory)
    burn = machine.burn("--kernel-us", "1000", "--inflight", "8", "--seconds", "600")
    return subprocess.Popen([*share, *burn], env=environment, stdout=subprocess.DEVNULL, text=True)


def _measure(stage: Stage, pids: dict[int, str], state: Path) -> list[Met]:
    time.sleep(_SETTLE_SECONDS)
    target = targets(stage)
    windows = [_window(pids, state, target) for _ in range(_WINDOWS)]
    results = [
        report(
            f"figure 6, {stage.title}: worst share error over 10 s, fraction of the GPU",
            at_most(_ERROR_GOAL),
            [max(abs(measured[job] - target[job]) for job in target) for measured in windows],
            measured=[
                {job: round(share, 4) for job, share in measured.items()} for measured in windows
            ],
            target=target,
        )
    ]
    if sum(target.values()) > 1 - 1e-5:
        totals = [sum(measured.values()) for measured in windows]
        what = f"figure 6, {stage.title}: GPU in use, fraction"
        results.append(report(what, at_least(_TOTAL_GOAL), totals))
    return results


def _window(pids: dict[int, str], state: Path, target: dict[str, float]) -> dict[str, float]:
    before = _sample(pids, state)
    time.sleep(_WINDOW_SECONDS)
    return shares(before, _sample(pids, state), target)


def _sample(pids: dict[int, str], state: Path) -> Sample:
    seen = fakegpu.stat(state)
    busy = {
        pids[process.pid]: process.busy_ns
        for process in seen.gpus[0].processes
        if process.alive and process.pid in pids
    }
    return Sample(seen.now_ns, busy)
