"""Fixtures: a run folder whose daemon is taken down after the test, and `kubeshare` on it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import DEADLINE_S
from kubeshare import fakegpu, native
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

FAKE = "V100x1"


class Machine:
    """`kubeshare` in a run folder of its own, with fake GPUs of its own."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start `kubeshare` with these arguments."""
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeshare.cli.main", *arguments],
            env={**os.environ, "KUBESHARE_RUN": str(self.paths.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def kubeshare(self, *arguments: str) -> tuple[int, str, str]:
        """Run `kubeshare` to its end: exit code, output, errors."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output, errors

    def start_run(
        self, request: float, *command: str, limit: float = 1, fake: str = FAKE
    ) -> "subprocess.Popen[str]":
        """Start a command on a share of the first fake GPU with room, and 1 GiB."""
        share = ("--request", str(request), "--limit", str(limit), "--memory", "1Gi")
        return self.start("run", "--fake", fake, *share, "--", *command)

    def burn(self, request: float, limit: float = 1, *options: str) -> "subprocess.Popen[str]":
        """Start a job that always has work, 1 ms a kernel.

        It keeps more kernels in flight than it does by default, so that a test machine
        that is late to wake it does not leave the GPU without work meanwhile.
        """
        program = str(native.path("burn"))
        return self.start_run(
            request, program, "--seconds", "600", "--inflight", "32", *options, limit=limit
        )

    def claims(self) -> dict[int, dict[str, Any]]:
        """What the daemon says of those that it granted, by the owner's pid; empty without one.

        A command asks for one GPU after another, and may be seen refused before it has a part.
        """
        return {int(claim["claim"].split("-")[1]): claim for claim in self.entries()}

    def entries(self) -> list[dict[str, Any]]:
        """The same, one for each GPU of a claim."""
        try:
            found = ask_snapshot(self.paths)["claims"]
        except DaemonMissingError:
            return []
        return [claim for claim in found if claim["state"] != "refused"]

    def busy_ns(self, fake: str = FAKE) -> dict[int, int]:
        """How long the GPU has really worked for each process, by pid."""
        try:
            truth = fakegpu.stat(self.paths.root / f"fakegpu-{fake}")
        except fakegpu.FakeGpuError:  # nobody has used them yet
            return {}
        return {process.pid: process.busy_ns for process in truth.gpus[0].processes}

    def shares(self, *jobs: "subprocess.Popen[str]", seconds: float) -> list[float]:
        """Which part of the GPU's time each job got within a window from now on."""
        start, began_ns = self.busy_ns(), time.monotonic_ns()
        end, now_ns = start, began_ns
        while now_ns - began_ns < seconds * 1e9:
            time.sleep(0.05)
            end, now_ns = self.busy_ns(), time.monotonic_ns()
        return [(end[job.pid] - start[job.pid]) / (now_ns - began_ns) for job in jobs]

    @property
    def daemon_pid(self) -> int:
        return int(self.paths.lock.read_text())

    def kill_daemon(self) -> None:
        """Kill the daemon as nothing could expect, and one that lost a race to be it."""
        while found := [pid for pid in _processes() if self._is_daemon(pid)]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _is_daemon(self, pid: int) -> bool:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return {b"kubeshare.tokens", os.fsencode(self.paths.root)} <= set(arguments)

    def clean_up(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate(timeout=DEADLINE_S)
        self.kill_daemon()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="kubeshare-", dir="/dev/shm") as folder:
        found = Machine(Path(folder) / "run")
        try:
            yield found
        finally:
            found.clean_up()
