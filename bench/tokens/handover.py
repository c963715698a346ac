"""The daemon itself, without a library or a GPU: how fast a token is handed over, and its CPU.

64 processes in C share 8 GPUs, always want the token and drain at once. A stand-in for the
daemon, in C and without any policy, shows what the machine itself takes for that, and the daemon
as pure Python what its compiled modules save; the three run in turn.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from bench.cpu_time import cpu_seconds
from bench.report import (
    Met,
    at_most,
    differences,
    interleave,
    percentile,
    ratios,
    report,
    time_at_most,
)

from kubeshare import native
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status

_GPUS = 8
_CLIENTS = 8
_SECONDS = 8.0
_QUOTAS_NS = (100_000_000, 20_000_000)
_CPU_GOALS = {100_000_000: 0.02, 20_000_000: 0.05}
"""Of a core."""
_TAIL_US_GOAL = 500.0
"""More than the stand-in's p99."""
# Times what the stand-in takes, which does the same for the kernel and decides nothing: the same
# on every machine.
_CPU_RATIO_GOAL = 3.0
_MEDIAN_RATIO_GOAL = 4.0
_TAIL_RATIO_GOAL = 5.0
_ROUNDS = 5


class Run(NamedTuple):
    """What one run showed: microseconds of each handover, and the CPU of who handed over."""

    handovers_us: list[float]
    cpu: float


Serve: TypeAlias = Callable[[Paths, Sequence[str], int], contextlib.AbstractContextManager[int]]
"""Serves these claims with this quota in ns; gives the pid of who does."""


def run() -> list[Met]:
    """Handovers at both quotas, and the daemon's CPU at each."""
    results = []
    for quota_ns in _QUOTAS_NS:
        daemon: list[Run] = []

        def both(quota_ns: int = quota_ns, daemon: list[Run] = daemon) -> Run:
            daemon.append(_run(quota_ns, _daemon))
            return _run(quota_ns, _pure_daemon)

        floor, pure = interleave(_ROUNDS, partial(_run, quota_ns, _floor), both)
        results += _report(quota_ns, daemon, floor, pure)
    return results


def _report(
    quota_ns: int, daemon: Sequence[Run], floor: Sequence[Run], pure: Sequence[Run]
) -> list[Met]:
    where = f"{_GPUS} GPUs x {_CLIENTS} clients, quota {quota_ns / 1e6:g} ms"
    over, than = f"over that of a C ping-pong, {where}", f"than a C ping-pong's, {where}"
    medians = [[percentile(run.handovers_us, 50) for run in runs] for runs in (daemon, floor)]
    tails = [[percentile(run.handovers_us, 99) for run in runs] for runs in (daemon, floor)]
    cpus = [[run.cpu for run in runs] for runs in (daemon, floor)]
    return [
        report(
            f"token: drained to next client runs, median {over}",
            at_most(_MEDIAN_RATIO_GOAL),
            ratios(*medians),
            handovers=sum(len(run.handovers_us) for run in daemon),
            floor_us=[_summary(run.handovers_us) for run in floor],
            daemon_us=[_summary(run.handovers_us) for run in daemon],
            pure_python_us=[_summary(run.handovers_us) for run in pure],
        ),
        report(
            f"token: drained to next client runs, p99 {over}",
            at_most(_TAIL_RATIO_GOAL),
            ratios(*tails),
        ),
        report(
            f"token: drained to next client runs, us of the p99 more {than}",
            time_at_most(_TAIL_US_GOAL),
            differences(*tails),
        ),
        report(f"token: the daemon's CPU {over}", at_most(_CPU_RATIO_GOAL), ratios(*cpus)),
        report(
            f"token: the daemon's CPU, of a core, {where}",
            time_at_most(_CPU_GOALS[quota_ns]),
            cpus[0],
            floor=[round(cpu, 4) for cpu in cpus[1]],
            pure_python=[round(run.cpu, 4) for run in pure],
        ),
    ]


def _run(quota_ns: int, serve: Serve) -> Run:
    with tempfile.TemporaryDirectory(prefix="ks-", dir="/dev/shm") as folder:
        paths = Paths(Path(folder))
        paths.make()
        names = [f"{gpu}-{client}" for gpu in range(_GPUS) for client in range(_CLIENTS)]
        with serve(paths, names, quota_ns) as pid:
            clients = [_client(paths, name) for name in names]
            time.sleep(_SECONDS / 4)  # they have all come in
            before, start = cpu_seconds(pid), time.monotonic()
            time.sleep(_SECONDS / 2)
            cpu = (cpu_seconds(pid) - before) / (time.monotonic() - start)
            said = [client.communicate(timeout=60)[0] for client in clients]
    handovers = []
    for gpu in range(_GPUS):
        handovers += _handovers(said[gpu * _CLIENTS : (gpu + 1) * _CLIENTS])
    return Run(handovers, cpu)


@contextlib.contextmanager
def _pure_daemon(paths: Paths, names: Sequence[str], quota_ns: int) -> Iterator[int]:
    """The daemon without its compiled modules."""
    with _daemon(paths, names, quota_ns, {"KUBESHARE_NATIVE": str(paths.root)}) as pid:
        yield pid


@contextlib.contextmanager
def _daemon(
    paths: Paths,
    names: Sequence[str],
    quota_ns: int,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    command = [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root)]
    for name in names:
        write_grant(paths, _grant(name, quota_ns))
    settings = os.environ | environment
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=settings) as process:
        try:
            for name in names:
                wait_status(paths, name, 30)
            yield process.pid
        finally:
            process.terminate()


@contextlib.contextmanager
def _floor(paths: Paths, names: Sequence[str], quota_ns: int) -> Iterator[int]:
    for name in names:
        paths.claim(name).mkdir()
        # The stand-in reads which GPU a page is of; all else is its own.
        uuid = int(name.split("-")[0]).to_bytes(16, "little")
        (paths.claim(name) / "page").write_bytes(bytes(64 + 40) + uuid + bytes(8))
    command = [str(native.path("tests/token-turns")), "--floor", str(quota_ns // 1000)]
    command += [str(paths.claim(name)) for name in names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def _grant(name: str, quota_ns: int) -> Grant:
    gpu = GrantedShare(
        uuid=f"GPU-00000000-0000-4000-8000-{int(name.split('-', maxsplit=1)[0]):012x}",
        memory_total_bytes=2**34,
        request_micros=1_000_000 // _CLIENTS,
        limit_micros=1_000_000,
        memory_bytes=2**30,
    )
    return Grant(version=GRANT_VERSION, claim=name, gpus=(gpu,), quota_ns=quota_ns)


def _client(paths: Paths, name: str) -> "subprocess.Popen[str]":
    command = [str(native.path("tests/token-turns")), str(paths.claim(name)), str(_SECONDS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _handovers(said: Sequence[str]) -> list[float]:
    """From each drain on a GPU to the moment when another client was let in, us."""
    events = [
        (int(at), what, client)
        for client, text in enumerate(said)
        for what, at in (entry.split() for entry in text.splitlines())
    ]
    found, drain = [], None
    for at, what, client in sorted(events):
        if what == "out":
            drain = (at, client)
        elif drain is not None and drain[1] != client:
            found.append((at - drain[0]) / 1000)
            drain = None
    return found


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(values), 1),
        "p90": round(percentile(values, 90), 1),
        "p99": round(percentile(values, 99), 1),
    }
