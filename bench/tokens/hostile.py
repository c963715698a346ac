"""Hostile processes beside honest ones at one token daemon, for a given time.

    PYTHONPATH=tests python -m bench.tokens.hostile SECONDS
    PYTHONPATH=tests python -m bench.tokens.hostile SECONDS --claims 10

Two processes of one claim, or one of each of ten, do their worst through their sockets
(`native/tests/hostile.c` says what), while two other claims want the GPU always, and may use no
more than they requested. The hostile ones have the lowest priority, so that what they cost is what
they send, and not the CPU of this machine. `make test` does so for fifteen seconds, `make bench`
for a minute with ten claims; once in a while it is worth an hour. The shares of these two are
measured without the hostile ones too, for a minute at most. Prints one JSON line a fact; exit code
1 when one of them is not as it must be.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.cpu_time import cpu_seconds
from bench.report import Met, at_least, at_most, less_than, print_machine, report, summarize

from deadlines import eventually
from kubeshare import native
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.grants import write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from tokens.helpers import Client, grant, saturating
from tokens.program import start_program
from wakeups import Wakeups

REQUESTS: Final = {"first": 0.5, "second": 0.3}
HONEST: Final = tuple(REQUESTS)
_OF_HOSTILE: Final = 0.2
"""What all hostile claims request together."""
ACTS: Final = frozenset({"garbage", "floods", "lies", "hoards"})
SHARE_ERROR_MAX: Final = 0.03
SHARE_MOVE_MAX: Final = 0.01
"""By how much the hostile claims may change an honest one's share of the GPU."""
MEMORY_MAX_KIB: Final = 100_000
COMPLAINTS_PER_SECOND_MAX: Final = 10
_QUOTA_NS: Final = 20_000_000
_SECONDS: Final = 60
_CLAIMS: Final = 10
"""Of `make bench`."""


class Outcome(NamedTuple):
    """What was seen of the daemon.

    Attributes:
        acts: how often each hostile act came about.
        shares: of the GPU's time while they were at it, by claim, 0 to 1.
        shares_without: the same before they came.
        shares_after: the same for two seconds after they had left.
        cpu: of the daemon while they were at it, share of a core.
        cpu_without: the same before they came.
        memory_kib: the most that the daemon has held.
        descriptors: how many it had before they came, and after they had left.
        complaints: how many lines it logged.
        errors: what it wrote to stderr.
        exit_code: of its end on SIGTERM.
    """

    acts: dict[str, int]
    shares: dict[str, float]
    shares_without: dict[str, float]
    shares_after: dict[str, float]
    cpu: float
    cpu_without: float
    memory_kib: int
    descriptors: tuple[int, int]
    complaints: int
    errors: str
    exit_code: int


def beside_hostile(paths: Paths, seconds: int, *, claims: int = 1, before: int = 2) -> Outcome:
    """Serve two honest claims and hostile ones.

    Args:
        paths: of a run folder without a daemon.
        seconds: for how long the hostile ones are at it.
        claims: how many of these there are.
        before: for how many seconds the honest ones are measured alone.
    """
    for name, request in REQUESTS.items():
        write_grant(paths, grant(name, request, request, quota_ns=_QUOTA_NS))
    hostile = [f"hostile-{number}" for number in range(claims)]
    for name in hostile:
        write_grant(paths, grant(name, _OF_HOSTILE / claims, quota_ns=_QUOTA_NS))
    log = paths.root / "log"
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(start_program(paths, stdout=log))
        stack.callback(daemon.kill)
        for name in (*HONEST, *hostile):
            wait_status(paths, name, 20)
        first, second = (Client(paths, name) for name in HONEST)
        with saturating(first), saturating(second):
            descriptors = _descriptors(daemon.pid)
            with _measured(paths, daemon.pid) as without:
                time.sleep(before)
            with _measured(paths, daemon.pid) as beside:
                said = _hostile(paths, hostile, seconds, stack)
            eventually(
                lambda: _descriptors(daemon.pid) <= descriptors, "their connections are closed", 30
            )
            with _measured(paths, daemon.pid) as afterwards:
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
        shares=beside.shares,
        shares_without=without.shares,
        shares_after=afterwards.shares,
        cpu=beside.cpu,
        cpu_without=without.cpu,
        memory_kib=memory,
        descriptors=(descriptors, after),
        complaints=len(log.read_text().splitlines()),
        errors=errors,
        exit_code=daemon.returncode,
    )


def _hostile(
    paths: Paths, claims: Sequence[str], seconds: int, stack: contextlib.ExitStack
) -> list[str]:
    """Let the hostile processes do their worst; what they print of it."""
    program = str(native.path("tests/hostile"))
    processes = [
        stack.enter_context(
            subprocess.Popen(
                ["nice", "-n", "19", program, str(paths.claim(claim)), str(seconds), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        for seed, claim in enumerate(_each_process(claims))
    ]
    for process in processes:
        stack.callback(process.kill)
    return [process.communicate(timeout=seconds + 60)[0] for process in processes]


def _each_process(claims: Sequence[str]) -> Sequence[str]:
    """The claim of each hostile process."""
    return (*claims, *claims) if len(claims) == 1 else claims


class _Measured:
    """What was measured of the daemon and the honest claims within a block.

    Attributes:
        shares: of the GPU's time, by claim, 0 to 1.
        cpu: of the daemon, share of a core.
    """

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}
        self.cpu = 0.0


@contextlib.contextmanager
def _measured(paths: Paths, pid: int) -> Iterator[_Measured]:
    """Measure a block; the values are known when it has ended."""
    measured = _Measured()
    before, cpu, start = _charged_ns(paths), cpu_seconds(pid), time.monotonic_ns()
    yield measured
    after, elapsed = _charged_ns(paths), time.monotonic_ns() - start
    measured.cpu = (cpu_seconds(pid) - cpu) / (elapsed / 1e9)
    measured.shares = {name: (after[name] - before[name]) / elapsed for name in HONEST}


def _charged_ns(paths: Paths) -> dict[str, int]:
    return {entry["claim"]: entry["chargedNs"] for entry in ask_snapshot(paths)["claims"]}


def _most_memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def run() -> list[Met]:
    """A minute of ten hostile claims."""
    return _run(_SECONDS, _CLAIMS)


def _run(seconds: int, claims: int) -> list[Met]:
    with (
        tempfile.TemporaryDirectory(prefix="kubeshare-hostile-", dir="/dev/shm") as folder,
        Wakeups() as wakeups,
    ):
        before = min(seconds, _SECONDS)
        seen = beside_hostile(Paths(Path(folder)), seconds, claims=claims, before=before)
    who = f"{claims} hostile claim" + "s" * (claims != 1)
    what = f"{seconds} s beside {who}"
    return list(_report(what, seconds * claims, seen, wakeups.lost))


def main() -> int:
    """Run it for so many seconds, and print what must be so and whether it is."""
    parser = argparse.ArgumentParser(prog="bench.tokens.hostile", description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--claims", type=int, default=1, help="how many hostile ones (%(default)s)")
    given = parser.parse_args()
    print_machine()
    return summarize(_run(given.seconds, given.claims))


def _report(what: str, claim_seconds: int, seen: Outcome, lost: float) -> Iterator[Met]:
    """The facts; ``lost`` is the share of the time in which this machine let nobody run."""
    rarest = min(seen.acts.values())
    yield report(f"{what}: acts of the rarest kind", at_least(1), rarest, acts=seen.acts)
    yield report(f"{what}: exit code of the daemon on SIGTERM", at_most(0), seen.exit_code)
    lines = len(seen.errors.splitlines())
    yield report(f"{what}: lines of the daemon on stderr", at_most(0), lines)
    for name in HONEST:
        share = seen.shares[name]
        yield report(
            f"{what}: share of an honest claim that requests {REQUESTS[name]:g}",
            at_least(round(REQUESTS[name] - SHARE_ERROR_MAX, 4)),
            share,
            after_they_left=round(seen.shares_after[name], 4),
        )
        yield report(
            f"{what}: by how much they move the share of {REQUESTS[name]:g}",
            at_most(SHARE_MOVE_MAX),
            abs(share - seen.shares_without[name]),
            without=round(seen.shares_without[name], 4),
            beside=round(share, 4),
            lost_wakeups=round(lost, 4),
        )
    memory = less_than(MEMORY_MAX_KIB)
    yield report(f"{what}: the daemon's memory at most, KiB", memory, seen.memory_kib)
    yield report(
        f"{what}: descriptors that the daemon has more after they left",
        at_most(0),
        seen.descriptors[1] - seen.descriptors[0],
    )
    yield report(
        f"{what}: lines that the daemon logged, a second and claim",
        less_than(COMPLAINTS_PER_SECOND_MAX),
        seen.complaints / claim_seconds,
        daemon_cpu=round(seen.cpu, 4),
        daemon_cpu_without=round(seen.cpu_without, 4),
    )


if __name__ == "__main__":
    sys.exit(main())
