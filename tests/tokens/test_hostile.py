"""A hostile process next to honest ones: the daemon lives, and they keep their shares."""

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubeshare import native
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files import Paths, wait_status, write_grant
from tokens.helpers import Client, grant, saturating
from tokens.program import start_program

REQUESTS = {"hostile": 0.2, "first": 0.5, "second": 0.3}
SECONDS = 60
MOST_MEMORY_KIB = 100_000


def resident_kib(pid: int) -> int:
    """The most that a process has held so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def charged(paths: Paths) -> dict[str, int]:
    return {entry["claim"]: entry["chargedNs"] for entry in ask_snapshot(paths)["claims"]}


@pytest.mark.native
@pytest.mark.slow
def test_honest_processes_keep_their_shares_beside_hostile_ones(paths: Paths) -> None:
    for name, request in REQUESTS.items():
        write_grant(paths, grant(name, request, quota_ns=20_000_000))
    with ExitStack() as stack:
        daemon = stack.enter_context(start_program(paths))
        stack.callback(daemon.kill)
        for name in REQUESTS:
            wait_status(paths, name, 20)
        hostile = [
            stack.enter_context(
                subprocess.Popen(
                    [native.path("tests/hostile"), paths.claim("hostile"), str(SECONDS), str(seed)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed in range(2)
        ]
        for process in hostile:
            stack.callback(process.kill)
        first, second = Client(paths, "first"), Client(paths, "second")
        with saturating(first), saturating(second):
            before, start = charged(paths), time.monotonic_ns()
            said = [process.communicate(timeout=SECONDS + 30)[0] for process in hostile]
            after, elapsed = charged(paths), time.monotonic_ns() - start
        assert daemon.poll() is None
        memory = resident_kib(daemon.pid)
        daemon.terminate()
        output, errors = daemon.communicate(timeout=20)

    done = [entry.split() for text in said for entry in text.splitlines()]
    assert {what for what, times in done if int(times) > 0} == {
        "garbage",
        "floods",
        "lies",
        "hoards",
    }
    shares = {name: (after[name] - before[name]) / elapsed for name in REQUESTS}
    assert shares["first"] > REQUESTS["first"] - 0.03, shares
    assert shares["second"] > REQUESTS["second"] - 0.03, shares
    assert memory < MOST_MEMORY_KIB
    assert len(output.splitlines()) < 10 * SECONDS, "complaints are bounded too"
    assert errors == ""
