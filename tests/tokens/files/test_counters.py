"""The memory that processes report."""

import os
import subprocess
import sys
from pathlib import Path

from deadlines import DEADLINE_S
from kubeshare.tokens.files import counters
from tokens.helpers import (
    RunningDaemon,
    grant,
)


def test_memory_that_processes_say_they_use_is_shown(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    program = (
        "import fcntl, os, struct, sys\n"
        f"file = os.open({str(daemon.paths.counters('a'))!r}, os.O_RDWR)\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 64)\n"
        "os.pwrite(file, struct.pack('=II56xQ', 1, 7, 12345), 64)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert daemon.view("a")["memoryUsedBytes"] == 12345
        process.kill()
        process.wait(DEADLINE_S)

    assert daemon.view("a")["memoryUsedBytes"] == 0


def test_counters_that_somebody_cut_short_count_as_nothing(tmp_path: Path) -> None:
    counters.make(tmp_path / "counters")
    os.truncate(tmp_path / "counters", 100)

    assert counters.read(tmp_path / "counters")[0] == counters.Usage(0, 0)
