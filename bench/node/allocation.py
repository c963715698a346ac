"""What the library costs an allocation."""

import json
import subprocess

from bench.node import machine
from bench.report import Met, at_most, differences, interleave, report

from kubeshare import native

_PAIRS = 5
_GOAL_NS = 150


def run() -> list[Met]:
    """Nanoseconds that the account adds to an allocation and its free, at once and in a stream.

    Under both lies a driver that does nothing: the time that a real one takes, or the fake one,
    would hide the difference.
    """
    with machine.run_folder() as environment:
        return [
            _added("allocation and its free, ns added", [], environment),
            _added("allocation and its free in a stream, ns added", ["stream"], environment),
        ]


def _added(what: str, options: list[str], environment: dict[str, str]) -> Met:
    program = [
        *("env", f"LD_LIBRARY_PATH={native.path('stub')}"),
        *(str(native.path("allocation-bench")), "1000", *options),
    ]
    share = [*machine.kubeshare_run("1", "1", "V100x1"), *program]
    bare, shared = interleave(
        _PAIRS, lambda: _pair_ns(program, environment), lambda: _pair_ns(share, environment)
    )
    return report(
        what,
        at_most(_GOAL_NS),
        differences(shared, bare),
        without=bare,
        with_library=shared,
    )


def _pair_ns(command: list[str], environment: dict[str, str]) -> float:
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return float(json.loads(printed)["allocation_ns"])
