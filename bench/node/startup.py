"""How long a person waits for `kubeshare --help`, and what `run` adds to a command."""

import subprocess
import time
from collections.abc import Sequence

from bench.node import machine
from bench.report import line, median

_RUNS = 15


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """One run of a command, to its end."""
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def run() -> list[bool]:
    """Both numbers, medians of alternating runs."""
    with machine.run_folder() as environment:
        share = [*machine.kubeshare_run("0.1", "1", "V100x1"), "true"]
        seconds(share, environment)  # the first one starts the daemon
        helps, runs, bare = [], [], []
        for _ in range(_RUNS):
            helps.append(seconds([machine.KUBESHARE, "--help"], environment))
            runs.append(seconds(share, environment))
            bare.append(seconds(["true"], environment))
    help_ms = 1000 * median(helps)
    added_ms = 1000 * (median(runs) - median(bare))
    return [
        line("kubeshare --help, ms", "< 150", help_ms, met=help_ms < 150),
        line(
            "kubeshare run true with the daemon up, ms added",
            "< 300",
            added_ms,
            met=added_ms < 300,
            true_ms=round(1000 * median(bare), 2),
        ),
    ]
