"""A node without Kubernetes: a token daemon, fake GPUs, and jobs that hold shares of them.

Used by the benches and by the slow tests of shares. The truth is the fake GPU's own
log of busy time; nothing that the library or the daemon says of shares is believed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubeshare import fakegpu, native
from kubeshare.demo.timeline import Sample, shares
from kubeshare.tokens.client import ask_snapshot, is_answering
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedShare,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from kubeshare.tokens.wire.protocol import CLAIM_FOLDER_ENV, COUNTERS_FILE_ENV

_DEADLINE_S = 60.0


def eventually(question: Callable[[], object], what: str, seconds: float = _DEADLINE_S) -> None:
    """Ask until the answer is true.

    Raises:
        TimeoutError: it was not, in time.
    """
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Job:
    """A program that holds a claim.

    Attributes:
        name: of the claim.
        process: the program.
    """

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.process = process

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def tell(self, *commands: str) -> None:
        """Give it lines to read."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{command}\n" for command in commands))
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line that it writes, which is JSON."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def finished(self) -> dict[str, Any]:
        """Wait for its end, and return what `burn` says then."""
        output, _ = self.process.communicate(timeout=10 * _DEADLINE_S)
        said: dict[str, Any] = json.loads(output.splitlines()[-1])["summary"]
        return said


class Node:
    """One machine; all of it is gone when the block ends.

    Args:
        profile: of its fake GPUs.
        quota_s: the daemon's, seconds.
    """

    def __init__(self, profile: str = "V100x1", quota_s: float = 0.1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kubeshare-node-", dir="/dev/shm")
        self._state = Path(self._folder.name) / "gpus"
        self._profile = profile
        self._quota_s = quota_s
        self._daemon: subprocess.Popen[bytes] | None = None
        self.paths = Paths(Path(self._folder.name) / "run")
        self.jobs: dict[str, Job] = {}
        self._environments: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        self._state.mkdir()
        self.paths.make()
        self.start_daemon()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for job in self.jobs.values():
            job.process.kill()
            job.process.communicate()
        self.kill_daemon()
        self._folder.cleanup()

    def start_daemon(self) -> None:
        """Start the token daemon, and wait until it answers."""
        self._daemon = self._spawn_daemon()
        eventually(lambda: is_answering(self.paths), "the daemon answers")

    def exchange_daemon(self) -> None:
        """Have the next one stand by, and end the one that serves, as an upgrade does."""
        assert self._daemon is not None
        stood_by = self._times_stood_by()
        successor = self._spawn_daemon("--stand-by")
        eventually(lambda: self._times_stood_by() > stood_by, "the next daemon stands by")
        self.end_daemon()
        self._daemon = successor
        eventually(lambda: is_answering(self.paths), "the next daemon answers")

    def _times_stood_by(self) -> int:
        return self.paths.log.read_text().count('"standing by"')

    def _spawn_daemon(self, *options: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(self.paths.root)]
        with self.paths.log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--quota", str(self._quota_s), *options], stdout=log, stderr=log
            )

    def end_daemon(self) -> None:
        """End it as an upgrade does, and wait until it is gone."""
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.wait(_DEADLINE_S)
        self._daemon = None

    def kill_daemon(self) -> None:
        """End it as the kernel does, without a word."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None

    def daemon_cpu_s(self) -> float:
        """Seconds of a core that the daemon has used."""
        assert self._daemon is not None
        words = Path(f"/proc/{self._daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / float(os.sysconf("SC_CLK_TCK"))

    def grant(
        self,
        name: str,
        request: float,
        limit: float = 1,
        gpus: Sequence[int] = (0,),
        *,
        limit_alone: float = 0,
    ) -> dict[str, str]:
        """Make a claim of this part of each of some GPUs; the environment of its programs."""
        found = fakegpu.stat(self._state, self._profile).gpus
        parts = tuple(
            GrantedShare(
                uuid=found[index].uuid,
                memory_total_bytes=found[index].total_memory,
                request_micros=round(request * 1e6),
                limit_micros=round(limit * 1e6),
                limit_alone_micros=round(limit_alone * 1e6),
                memory_bytes=1 << 30,
            )
            for index in gpus
        )
        write_grant(self.paths, Grant(version=GRANT_VERSION, claim=name, gpus=parts))
        status = wait_status(self.paths, name, _DEADLINE_S)
        if status.state != "ACTIVE":
            raise ValueError(f"the daemon refuses {name}: {status.reason}")
        return {
            **os.environ,
            **fakegpu.environment(self._profile, self._state),
            CLAIM_FOLDER_ENV: str(self.paths.claim(name)),
            COUNTERS_FILE_ENV: str(self.paths.counters(name)),
            "LD_PRELOAD": str(native.path(native.DEVICE_LIBRARY)),
        }

    def start(  # noqa: PLR0913  one argument an amount
        self,
        name: str,
        request: float,
        *options: str,
        limit: float = 1,
        limit_alone: float = 0,
        gpus: Sequence[int] = (0,),
        program: Sequence[str] | None = None,
    ) -> Job:
        """Start a job on a claim of its own.

        Args:
            name: of the claim, and of the job.
            request: a share of each of its GPUs.
            options: of `burn`.
            limit: likewise.
            limit_alone: likewise, while no other claim has a share of that GPU; 0 is the limit.
            gpus: indices.
            program: a command line instead of `burn` with these options.
        """
        command = program or [str(native.path("burn")), *options]
        environment = self.grant(name, request, limit, gpus, limit_alone=limit_alone)
        return self._start(name, command, environment)

    def start_beside(self, other: str, name: str, *options: str) -> Job:
        """Start another job of a claim: that of the job `other`, which has the claim's name."""
        command = [str(native.path("burn")), *options]
        return self._start(name, command, self._environments[other])

    def _start(self, name: str, command: Sequence[str], environment: dict[str, str]) -> Job:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.jobs[name] = Job(name, process)
        self._environments[name] = environment
        return self.jobs[name]

    def end(self, name: str) -> None:
        """Kill a job, and take its claim back."""
        job = self.jobs.pop(name)
        job.process.kill()
        job.process.communicate()
        remove_grant(self.paths, name)

    def sample(self, gpu: int = 0) -> Sample:
        """How long the GPU has worked for each job."""
        seen = fakegpu.stat(self._state)
        names = {job.process.pid: job.name for job in self.jobs.values()}
        busy: dict[str, int] = {}
        for process in seen.gpus[gpu].processes:
            if process.pid in names and process.alive:
                busy[names[process.pid]] = process.busy_ns
        return Sample(seen.now_ns, busy)

    def shares(self, seconds: float, jobs: Iterable[str] = (), gpu: int = 0) -> dict[str, float]:
        """The share of each job, all unless some are named, within the next seconds."""
        before = self.sample(gpu)
        time.sleep(seconds)
        return shares(before, self.sample(gpu), tuple(jobs) or self.jobs)

    def wait_until_busy(self, *names: str, busy_ns: int = 1, gpu: int = 0) -> None:
        """Wait until the GPU has worked so long for each of these jobs."""
        eventually(
            lambda: all(self.sample(gpu).busy_ns.get(name, 0) >= busy_ns for name in names),
            f"the GPU works for {', '.join(names)}",
        )

    def views(self) -> dict[str, dict[str, Any]]:
        """What the daemon says of each claim on its first GPU."""
        found: dict[str, dict[str, Any]] = {}
        for entry in ask_snapshot(self.paths)["claims"]:
            found.setdefault(entry["claim"], entry)
        return found
