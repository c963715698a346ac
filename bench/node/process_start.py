"""What the library costs the start of a process that uses a GPU, alone and with many others."""

import json
import subprocess

from bench.node import machine
from bench.report import Met, at_most, differences, interleave, median, ratios, report

from kubeshare import native

_PAIRS = 5
_PROCESSES = 200
_GOAL_MS = 2.0
_GOAL_AT_ONCE = 2.0


def run() -> list[Met]:
    """Milliseconds that are added to a start, and how 200 at once compare with 200 in a row.

    A process looks up all functions of the driver as the CUDA runtime does, and has a context.
    """
    program = [str(native.path("start-bench")), str(_PROCESSES)]
    with machine.run_folder() as environment:
        share = [*machine.kubeshare_run("1", "1", "V100x1"), *program]
        bare, shared = interleave(
            _PAIRS,
            lambda: _times(program, machine.on_fake(environment, "V100x1")),
            lambda: _times(share, environment),
        )
    one_without, one_with = (
        [times["one_after_another_ns"] / _PROCESSES / 1e6 for times in runs]
        for runs in (bare, shared)
    )
    at_once = [times["at_once_ns"] / _PROCESSES / 1e6 for times in shared]
    return [
        report(
            "start of a process with a context, ms added",
            at_most(_GOAL_MS),
            differences(one_with, one_without),
            without_ms=median(one_without),
            with_library_ms=median(one_with),
        ),
        report(
            f"{_PROCESSES} processes that start at once, against one after another without it, x",
            at_most(_GOAL_AT_ONCE),
            ratios(at_once, one_without),
            without=bare,
            with_library=shared,
        ),
    ]


def _times(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    times: dict[str, float] = json.loads(printed)
    return times
