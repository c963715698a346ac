"""Starts and stops long-running programs, known by pid and start time.

A pid alone may have been reused; with the start time (in ticks since boot) it names one process
for ever, so a lab that was left for a week never ends another program's process.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_STAT_STATE = 0
_STAT_START_TIME = 19
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02


class Process(Struct, frozen=True):
    """One process of this machine.

    Args:
        pid: as the machine's own PID namespace counts.
        start_time: clock ticks between boot and its start.
    """

    pid: int
    start_time: int


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything.
    return text.rpartition(")")[2].split()


def identify(pid: int) -> Process | None:
    """The process that has this pid now, or None."""
    fields = _stat(pid)
    return Process(pid, int(fields[_STAT_START_TIME])) if fields else None


def alive(process: Process) -> bool:
    """Whether any thread of it runs; a zombie does not."""
    fields = _stat(process.pid)
    if fields is None or int(fields[_STAT_START_TIME]) != process.start_time:
        return False
    if fields[_STAT_STATE] != "Z":
        return True
    try:
        # 0: its first thread has ended, others still run.
        return os.waitpid(process.pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        # It may have been reaped meanwhile.
        with suppress(FileNotFoundError):
            return len(list(Path(f"/proc/{process.pid}/task").glob("*"))) > 1
        return False


def start(argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a program in a session of its own, its output appended to ``log``.

    Args:
        argv: the program and its arguments.
        log: made with its folder if missing.
        environment: added to this process's own.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | dict(environment or {}),
        )
    # alive() reaps it.
    child.returncode = 0
    started = identify(child.pid)
    assert started is not None, "a child that was not waited for keeps its entry in /proc"
    return started


def _signal(process: Process, number: int) -> None:
    if alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def stop(processes: Iterable[Process], *, gently: bool = True) -> None:
    """End processes and wait until they have ended.

    Args:
        processes: those that ended already are passed over.
        gently: SIGTERM first, SIGKILL to those still there after 10 s.
    """
    left = [process for process in processes if alive(process)]
    for number in (signal.SIGTERM, signal.SIGKILL) if gently else (signal.SIGKILL,):
        for process in left:
            _signal(process, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while (left := [one for one in left if alive(one)]) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, or a note that there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"(no log at {log})"
    return "\n".join(text.splitlines()[-lines:])
