"""Turns change hands while the daemon reads files that containers have made expensive."""

import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens.files.counters import FILE_BYTES_MAX
from kubeshare.tokens.files.grants import write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from kubeshare.tokens.wire.protocol import (
    COUNTERS_HEADER,
    COUNTERS_SLOT,
    PROCESSES_MAX,
    GateState,
    MessageType,
)
from tokens.helpers import Client, grant, prepared
from tokens.program import listening_port, start_program
from wakeups import Wakeups

COSTLY = 4
"""Claims whose files are expensive: read one after another, each up to the budget of a file."""
LOCKS = 15_000
"""Of a file: then reading it to its end takes 50 to 100 ms."""
STALL_MAX_S = 0.05
"""Less than the budgets of all these files."""
SCRAPES = 20


def lock_them(paths: Paths, claims: list[str]) -> str:
    """A program that uses each slot of these claims' counters and sets locks behind them.

    The last lock comes first: the kernel looks for a lock's place from the front.
    """
    files = [str(paths.counters(claim)) for claim in claims]
    return (
        "import fcntl, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def lock(file):\n"
        f"    for slot in range({PROCESSES_MAX}):\n"
        f"        file.seek({COUNTERS_HEADER.size} + slot * {COUNTERS_SLOT.size})\n"
        "        file.write(b'\\1')\n"
        f"    for lock in reversed(range({LOCKS})):\n"
        f"        fcntl.lockf(file, fcntl.LOCK_EX, 1, {FILE_BYTES_MAX} + 2 * lock)\n"
        f"files = [open(name, 'r+b', buffering=0) for name in {files!r}]\n"
        "with ThreadPoolExecutor() as pool:\n"
        "    list(pool.map(lock, files))\n"
    )


def hand_over(holder: Client, waiter: Client) -> float:
    """Give the GPU from an idle client to one that wants it; the seconds that it waited."""
    began = time.monotonic()
    waiter.want()
    watch = holder.receive_until(MessageType.WATCH)
    holder.send(MessageType.IDLE, epoch=watch.epoch)
    holder.drain()
    eventually(lambda: waiter.page.gate is GateState.OPEN, "it has the GPU")
    return time.monotonic() - began


def scrape(port: int, times: int) -> str:
    """Ask for the metrics one time after another, and return the last."""
    for _ in range(times):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S
        ) as answer:
            metrics = answer.read().decode()
    return str(metrics)


def port_of(daemon: subprocess.Popen[str]) -> int:
    """Where it serves metrics, once it does."""
    return eventually(lambda: listening_port(daemon.pid), "metrics are served")


@pytest.mark.serial
def test_thousands_of_locks_on_counters_stall_no_handover_while_they_are_read(paths: Paths) -> None:
    costly = [f"costly-{number}" for number in range(COSTLY)]
    for claim in (*costly, "a", "b"):
        write_grant(paths, grant(claim, 0.1))
    log = paths.root.with_name("log")
    with start_program(paths, "--port", "0", stdout=log) as daemon, ThreadPoolExecutor() as beside:
        try:
            for claim in (*costly, "a", "b"):
                assert wait_status(paths, claim, DEADLINE_S).state == "ACTIVE"
            port = port_of(daemon)
            holder, waiter = Client(paths, "a"), Client(paths, "b")
            holder.open()
            waits: list[float] = []
            with prepared(lock_them(paths, costly)), Wakeups() as wakeups:
                scraped = beside.submit(scrape, port, SCRAPES)
                while not scraped.done():
                    waits.append(hand_over(holder, waiter))
                    holder, waiter = waiter, holder
            metrics = scraped.result()
        finally:
            daemon.kill()
    assert max(waits) < STALL_MAX_S + wakeups.lost_seconds
    assert f"kubeshare_token_counters_skipped {COSTLY}.0" in metrics, "all were read, and too long"
