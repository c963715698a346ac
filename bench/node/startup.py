"""How long ``kubeshare --help`` takes, and what ``run`` adds to a command."""

import subprocess
import time
from collections.abc import Sequence

from bench.node import machine
from bench.report import Met, differences, interleave, less_than, median, report

_RUNS = 15


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """One run of a command, to its end."""
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def run() -> list[Met]:
    """Both numbers, of alternating runs."""
    with machine.run_folder() as environment:
        share = [*machine.kubeshare_run("0.1", "1", "V100x1"), "true"]
        seconds(share, environment)  # the first one starts the daemon
        shared, bare = interleave(
            _RUNS, lambda: seconds(share, environment), lambda: seconds(["true"], environment)
        )
        helps = [seconds([*machine.KUBESHARE, "--help"], environment) for _ in range(_RUNS)]
    return [
        report("kubeshare --help, ms", less_than(150), [1000 * each for each in helps]),
        report(
            "kubeshare run true with the daemon up, ms added",
            less_than(300),
            [1000 * each for each in differences(shared, bare)],
            true_ms=round(1000 * median(bare), 2),
        ),
    ]
