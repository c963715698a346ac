"""What the library costs a job that has a GPU to itself, and a launch."""

import json
import subprocess

from bench.node import machine
from bench.report import Met, at_most, differences, interleave, ratios, report

from kubeshare import native

_PAIRS = 5
_SECONDS = "5"


def run() -> list[Met]:
    """Kernels a second with and without, and nanoseconds that the open gate adds to a launch."""
    with machine.run_folder() as environment:
        return [_throughput(environment), _launch(environment)]


def _throughput(environment: dict[str, str]) -> Met:
    burn = machine.burn("--kernel-us", "1000", "--seconds", _SECONDS)
    share = [*machine.kubeshare_run("1", "1", "V100x1"), *burn]
    bare, shared = interleave(
        _PAIRS,
        lambda: _kernels_per_s(burn, machine.on_fake(environment, "V100x1")),
        lambda: _kernels_per_s(share, environment),
    )
    return report(
        "one job alone, limit 1, its lease extended: kernels a second lost, fraction",
        at_most(0.003),
        [1 - ratio for ratio in ratios(shared, bare)],
        without=bare,
        with_library=shared,
    )


def _kernels_per_s(command: list[str], environment: dict[str, str]) -> float:
    summary = json.loads(_output(command, environment).splitlines()[-1])["summary"]
    return float(summary["kernels_per_s"])


def _launch(environment: dict[str, str]) -> Met:
    launches = [str(native.path("launch-bench"))]
    share = [*machine.kubeshare_run("1", "1", "V100x1"), *launches]
    bare, shared = interleave(
        _PAIRS,
        lambda: _launch_ns(launches, machine.on_fake(environment, "V100x1")),
        lambda: _launch_ns(share, environment),
    )
    return report(
        "launch through the open gate, ns added",
        at_most(8),
        differences(shared, bare),
        without=bare,
        with_library=shared,
    )


def _launch_ns(command: list[str], environment: dict[str, str]) -> float:
    return float(json.loads(_output(command, environment))["launch_ns"])


def _output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
