"""What the library costs an allocation."""

import json
import subprocess

from bench.node import machine
from bench.report import line, median

from kubeshare import native

_PAIRS = 3
_GOAL_NS = 150


def run() -> list[bool]:
    """Nanoseconds that the account adds to an allocation and its free, at once and in a stream.

    Under both, a driver that does nothing: what a real one takes, or the fake one, would drown
    the difference.
    """
    with machine.run_folder() as environment:
        return [
            _added("allocation and its free, ns added", [], environment),
            _added("allocation and its free in a stream, ns added", ["stream"], environment),
        ]


def _added(what: str, options: list[str], environment: dict[str, str]) -> bool:
    program = [
        *("env", f"LD_LIBRARY_PATH={native.path('stub')}"),
        *(str(native.path("allocation-bench")), "10000", *options),
    ]
    bare, shared = [], []
    for _ in range(_PAIRS):
        bare.append(_pair_ns(program, environment))
        share = machine.kubeshare_run("1", "1", "V100x1")
        shared.append(_pair_ns([*share, *program], environment))
    added = median(shared) - median(bare)
    return line(
        what,
        f"<= {_GOAL_NS}",
        added,
        met=added <= _GOAL_NS,
        without=bare,
        with_library=shared,
    )


def _pair_ns(command: list[str], environment: dict[str, str]) -> float:
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return float(json.loads(printed)["allocation_ns"])
