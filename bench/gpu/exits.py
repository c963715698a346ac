"""Two hundred jobs that end in three ways beside one that goes on: is a turn ever lost."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

from bench.gpu.clients import Bench, Client, Clients, Share
from bench.gpu.experiment import Experiment, Result
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.run_folder import Paths

_EXITS: Final = 200
_AT_ONCE: Final = 6
_KERNELS: Final = ("--kernel-us", "5000", "--inflight", "4")
_WAYS: Final = {"returns": 0, "terminated": signal.SIGTERM, "killed": signal.SIGKILL}
"""What a job is sent while its kernels run; 0: it ends by itself after some steps."""

_STAYS: Final = "stays"
_SECONDS: Final = 3.0


def run(bench: Bench) -> Result:
    """Jobs of a tenth each; what stays has its rate again, and no claim is left behind."""
    exits = max(_AT_ONCE, int(_EXITS * bench.pace))
    codes: Counter[str] = Counter()
    with bench.clients() as clients:
        clients.start(_STAYS, Share(".5"), *_KERNELS, "--seconds", "600")
        before = clients.watch(1, bench.seconds(_SECONDS)).rates[_STAYS]
        for first in range(0, exits, _AT_ONCE):
            codes.update(_end_some(clients, range(first, min(first + _AT_ONCE, exits))))
        after = clients.watch(1, bench.seconds(_SECONDS)).rates[_STAYS]
        claims = ask_snapshot(Paths(Path(bench.environment["KUBESHARE_RUN"])))["claims"]
    return {
        "exits": exits,
        "codes": dict(codes),
        "claims_left": len(claims) - 1,
        "rate_before": before,
        "rate_after": after,
    }


def _end_some(clients: Clients, numbers: range) -> list[str]:
    """Start jobs, end each in its way, and say with which exit codes."""
    ways = list(_WAYS.items())
    jobs: list[tuple[str, int, str, Client]] = []
    for number in numbers:
        way, signum = ways[number % len(ways)]
        end = ("--steps", "20") if signum == 0 else ("--seconds", "600")
        name = f"job-{number}"
        jobs.append((way, signum, name, clients.start(name, Share(".08"), *_KERNELS, *end)))
    ended = []
    for way, signum, name, job in jobs:
        if signum:
            job.wait_for_first_line(60)
            os.kill(job.pid, signum)
        ended.append(f"{way}: exit code {job.wait(60)}")
        clients.stop(name)
    return ended


EXITS = Experiment("exits", "two hundred jobs that end, and one that goes on", 140, run)
