"""Hostile processes beside honest ones at one token daemon, for a given time.

    PYTHONPATH=tests python -m bench.tokens.hostile SECONDS

Two processes of one claim do their worst through its socket (`native/tests/hostile.c`
says what), while two other claims want the GPU always. `make test` does so for
fifteen seconds; once in a while it is worth an hour. Prints one JSON line a fact; exit code 1
when one of them is not as it must be.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.report import at_least, at_most, less_than, print_machine, report, summarize

from deadlines import eventually
from kubeshare import native
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.grants import write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from tokens.helpers import Client, grant, saturating
from tokens.program import start_program

REQUESTS: Final = {"hostile": 0.2, "first": 0.5, "second": 0.3}
HONEST: Final = ("first", "second")
ACTS: Final = frozenset({"garbage", "floods", "lies", "hoards"})
SHARE_ERROR_MAX: Final = 0.03
MEMORY_MAX_KIB: Final = 100_000
COMPLAINTS_PER_SECOND_MAX: Final = 10
_QUOTA_NS: Final = 20_000_000
_HOSTILE_PROCESSES: Final = 2


class Outcome(NamedTuple):
    """What was seen of the daemon.

    Attributes:
        acts: how often each hostile act came about.
        shares: of the GPU's time while they were at it, by claim, 0 to 1.
        shares_after: the same for two seconds after they had left.
        cpu: of the daemon while they were at it, share of a core.
        memory_kib: the most that the daemon has held.
        descriptors: how many it had before they came, and after they had left.
        complaints: how many lines it logged.
        errors: what it wrote to stderr.
        exit_code: of its end on SIGTERM.
    """

    acts: dict[str, int]
    shares: dict[str, float]
    shares_after: dict[str, float]
    cpu: float
    memory_kib: int
    descriptors: tuple[int, int]
    complaints: int
    errors: str
    exit_code: int


def beside_hostile(paths: Paths, seconds: int) -> Outcome:
    """Serve two honest claims and a hostile one.

    Args:
        paths: of a run folder without a daemon.
        seconds: for how long the hostile one is at it.
    """
    for name, request in REQUESTS.items():
        write_grant(paths, grant(name, request, quota_ns=_QUOTA_NS))
    log = paths.root / "log"
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(start_program(paths, stdout=log))
        stack.callback(daemon.kill)
        for name in REQUESTS:
            wait_status(paths, name, 20)
        first, second = (Client(paths, name) for name in HONEST)
        with saturating(first), saturating(second):
            before = _descriptors(daemon.pid)
            with _measured(paths) as shares:
                cpu, start = _cpu_seconds(daemon.pid), time.monotonic()
                said = _hostile(paths, seconds, stack)
                cpu = (_cpu_seconds(daemon.pid) - cpu) / (time.monotonic() - start)
            eventually(
                lambda: _descriptors(daemon.pid) <= before, "their connections are closed", 30
            )
            with _measured(paths) as shares_after:
                time.sleep(2)
            assert daemon.poll() is None, "the daemon ended by itself"
        memory, after = _most_memory_kib(daemon.pid), _descriptors(daemon.pid)
        daemon.terminate()
        _, errors = daemon.communicate(timeout=20)
    acts = dict.fromkeys(ACTS, 0)
    for what, times in (entry.split() for text in said for entry in text.splitlines()):
        acts[what] += int(times)
    return Outcome(
        acts=acts,
        shares=shares,
        shares_after=shares_after,
        cpu=cpu,
        memory_kib=memory,
        descriptors=(before, after),
        complaints=len(log.read_text().splitlines()),
        errors=errors,
        exit_code=daemon.returncode,
    )


def _hostile(paths: Paths, seconds: int, stack: contextlib.ExitStack) -> list[str]:
    """Let the hostile processes do their worst; what they print of it."""
    program = str(native.path("tests/hostile"))
    processes = [
        stack.enter_context(
            subprocess.Popen(
                [program, str(paths.claim("hostile")), str(seconds), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        for seed in range(_HOSTILE_PROCESSES)
    ]
    for process in processes:
        stack.callback(process.kill)
    return [process.communicate(timeout=seconds + 60)[0] for process in processes]


@contextlib.contextmanager
def _measured(paths: Paths) -> Iterator[dict[str, float]]:
    """Each claim's share of the GPU's time, known when the block has ended."""
    shares: dict[str, float] = {}
    before, start = _charged_ns(paths), time.monotonic_ns()
    yield shares
    after, elapsed = _charged_ns(paths), time.monotonic_ns() - start
    shares |= {name: (after[name] - before[name]) / elapsed for name in REQUESTS}


def _charged_ns(paths: Paths) -> dict[str, int]:
    return {entry["claim"]: entry["chargedNs"] for entry in ask_snapshot(paths)["claims"]}


def _most_memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> int:
    """Run it for so many seconds, and print what must be so and whether it is."""
    parser = argparse.ArgumentParser(prog="bench.hostile", description=__doc__)
    parser.add_argument("seconds", type=int)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="kubeshare-hostile-", dir="/dev/shm") as folder:
        seen = beside_hostile(Paths(Path(folder)), seconds)
    what = f"{seconds} s beside {_HOSTILE_PROCESSES} hostile processes"
    print_machine()
    return summarize(
        [
            report(
                f"{what}: acts of the rarest kind",
                at_least(1),
                min(seen.acts.values()),
                acts=seen.acts,
            ),
            report(f"{what}: exit code of the daemon on SIGTERM", at_most(0), seen.exit_code),
            report(
                f"{what}: lines of the daemon on stderr", at_most(0), len(seen.errors.splitlines())
            ),
            *(
                report(
                    f"{what}: share of an honest claim that requests {REQUESTS[name]:g}",
                    at_least(round(REQUESTS[name] - SHARE_ERROR_MAX, 4)),
                    seen.shares[name],
                    after_they_left=round(seen.shares_after[name], 4),
                )
                for name in HONEST
            ),
            report(
                f"{what}: the daemon's memory at most, KiB",
                less_than(MEMORY_MAX_KIB),
                seen.memory_kib,
            ),
            report(
                f"{what}: descriptors that the daemon has more after they left",
                at_most(0),
                seen.descriptors[1] - seen.descriptors[0],
            ),
            report(
                f"{what}: lines that the daemon logged, a second",
                less_than(COMPLAINTS_PER_SECOND_MAX),
                seen.complaints / seconds,
                daemon_cpu=round(seen.cpu, 4),
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
