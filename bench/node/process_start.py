"""What the library costs the start of a process that uses a GPU, alone and with many others."""

import json
import subprocess

from bench.node import machine
from bench.report import line, median

from kubeshare import native

_PAIRS = 3
_PROCESSES = 200
_GOAL_MS = 2.0
_GOAL_AT_ONCE = 2.0


def run() -> list[bool]:
    """Milliseconds that are added to a start, and how 200 at once compare with 200 in a row.

    A process looks up all functions of the driver as the CUDA runtime does, and has a context.
    """
    program = [str(native.path("start-bench")), str(_PROCESSES)]
    bare, shared = [], []
    with machine.run_folder() as environment:
        for _ in range(_PAIRS):
            bare.append(_times(program, machine.on_fake(environment, "V100x1")))
            share = machine.kubeshare_run("1", "1", "V100x1")
            shared.append(_times([*share, *program], environment))
    one_without, one_with = (
        median([times["one_after_another_ns"] / _PROCESSES / 1e6 for times in runs])
        for runs in (bare, shared)
    )
    at_once = median([times["at_once_ns"] / _PROCESSES / 1e6 for times in shared]) / one_without
    added = one_with - one_without
    return [
        line(
            "start of a process with a context, ms added",
            f"<= {_GOAL_MS}",
            added,
            met=added <= _GOAL_MS,
            without_ms=one_without,
            with_library_ms=one_with,
        ),
        line(
            f"{_PROCESSES} processes that start at once, against one after another without it",
            f"<= {_GOAL_AT_ONCE} x",
            at_once,
            met=at_once <= _GOAL_AT_ONCE,
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
