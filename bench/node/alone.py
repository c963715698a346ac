"""What the library costs a job that has a GPU to itself, and a launch."""

import json
import subprocess

from bench.node import machine
from bench.report import line, median

from kubeshare import native

_PAIRS = 3
_SECONDS = "5"


def run() -> list[bool]:
    """Kernels a second with and without, and nanoseconds that the open gate adds to a launch."""
    with machine.run_folder() as environment:
        return [_throughput(environment), _launch(environment)]


def _throughput(environment: dict[str, str]) -> bool:
    burn = machine.burn("--kernel-us", "1000", "--seconds", _SECONDS)
    bare, shared = [], []
    for _ in range(_PAIRS):
        bare.append(_kernels_per_s(burn, machine.on_fake(environment, "V100x1")))
        share = machine.kubeshare_run("1", "1", "V100x1")
        shared.append(_kernels_per_s([*share, *burn], environment))
    loss = 1 - median(shared) / median(bare)
    return line(
        "one job alone, limit 1, its lease extended: kernels a second lost, fraction",
        "<= 0.003",
        loss,
        met=loss <= 0.003,
        without=bare,
        with_library=shared,
    )


def _kernels_per_s(command: list[str], environment: dict[str, str]) -> float:
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    summary = json.loads(printed.splitlines()[-1])["summary"]
    return float(summary["kernels_per_s"])


def _launch(environment: dict[str, str]) -> bool:
    launches = [str(native.path("launch-bench"))]
    bare, shared = [], []
    for _ in range(_PAIRS):
        bare.append(_launch_ns(launches, machine.on_fake(environment, "V100x1")))
        share = machine.kubeshare_run("1", "1", "V100x1")
        shared.append(_launch_ns([*share, *launches], environment))
    added = median(shared) - median(bare)
    return line(
        "launch through the open gate, ns added",
        "<= 10",
        added,
        met=added <= 10,
        without=bare,
        with_library=shared,
    )


def _launch_ns(command: list[str], environment: dict[str, str]) -> float:
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return float(json.loads(printed)["launch_ns"])
