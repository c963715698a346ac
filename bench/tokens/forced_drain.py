"""What it costs to drain a job at the end of every quota when no other job wants the GPU.

The bench takes the daemon's place: it closes the gate when the quota is over, and opens it
again as soon as the library reports that the GPU is idle. So it measures what the library and
the idle GPU lose, without a daemon or another job.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bench.node import machine
from bench.report import Met, at_most, interleave, ratios, report

from kubeshare import fakegpu, native
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare
from kubeshare.tokens.wire.page import PageWriter
from kubeshare.tokens.wire.protocol import (
    CLAIM_FOLDER_ENV,
    COUNTERS_FILE_ENV,
    MESSAGE,
    GateState,
    GrantState,
    Message,
    MessageType,
)

_PROFILE = "V100x1"
_PAIRS = 5
_SECONDS = 5.0
_GOALS = {0.1: 0.01, 0.03: 0.03}  # fraction lost, by quota in seconds


def run() -> list[Met]:
    """One line a quota."""
    return [_lost(quota_s, goal) for quota_s, goal in _GOALS.items()]


def _lost(quota_s: float, goal: float) -> Met:
    burn = machine.burn("--kernel-us", "1000", "--inflight", "32", "--seconds", str(_SECONDS))
    bare, drained = interleave(_PAIRS, lambda: _bare(burn), lambda: drained_rate(burn, quota_s))
    return report(
        f"one job drained each {1000 * quota_s:g} ms: kernels a second lost, fraction",
        at_most(goal),
        [1 - ratio for ratio in ratios(drained, bare)],
        without=bare,
        with_library=drained,
    )


def _bare(burn: list[str]) -> float:
    with machine.run_folder() as environment:
        return _kernels_per_s(_start(burn, machine.on_fake(environment, _PROFILE)))


def drained_rate(burn: list[str], quota_s: float) -> float:
    """Kernels a second of one job that is drained each quota, though no other job waits."""
    with _Daemon() as daemon:
        return daemon.drain_each(quota_s, burn)


def _start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _kernels_per_s(process: "subprocess.Popen[str]") -> float:
    output, _ = process.communicate(timeout=60)
    return float(json.loads(output.splitlines()[-1])["summary"]["kernels_per_s"])


class _Daemon:
    """A claim of a whole fake GPU, with this process at the other end of its socket."""

    def __enter__(self) -> Self:
        self._temporary = tempfile.TemporaryDirectory(prefix="kubeshare-bench-", dir="/dev/shm")
        folder = Path(self._temporary.name)
        (folder / "claim").mkdir()
        (folder / "gpu").mkdir()
        counters.make(folder / "counters")
        gpu = fakegpu.stat(folder / "gpu", _PROFILE).gpus[0]
        share = GrantedShare(
            uuid=gpu.uuid,
            memory_total_bytes=gpu.total_memory,
            request_micros=1_000_000,
            limit_micros=1_000_000,
            memory_bytes=1 << 30,
        )
        grant = Grant(version=GRANT_VERSION, claim="bench", gpus=(share,))
        self._page = PageWriter(folder / "claim" / "page", grant)
        self._page.set_grant_state(GrantState.ACTIVE)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(folder / "claim" / "socket"))
        self._listener.listen()
        self._environment = {
            **os.environ,
            **fakegpu.environment(_PROFILE, folder / "gpu"),
            CLAIM_FOLDER_ENV: str(folder / "claim"),
            COUNTERS_FILE_ENV: str(folder / "counters"),
            "LD_PRELOAD": str(native.path(native.DEVICE_LIBRARY)),
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._temporary.cleanup()

    def drain_each(self, quota_s: float, burn: list[str]) -> float:
        """Run the job, draining it each quota; its kernels a second."""
        process = _start(burn, self._environment)
        with self._listen() as connection:
            connection.settimeout(quota_s)
            while self._turn(connection, quota_s):
                pass
        return _kernels_per_s(process)

    @contextmanager
    def _listen(self) -> Iterator[socket.socket]:
        connection, _ = self._listener.accept()
        with connection:
            hello = Message.unpack(connection.recv(MESSAGE.size))
            connection.send(Message(MessageType.WELCOME, value=hello.value).pack())
            yield connection

    def _turn(self, connection: socket.socket, quota_s: float) -> bool:
        """Open the gate for a quota, and drain; False when the job has ended."""
        self._page.set_gate(0, GateState.OPEN)
        end = time.monotonic() + quota_s
        while (left := end - time.monotonic()) > 0:
            if self._hear(connection, left) == b"":
                return False
        self._page.set_gate(0, GateState.CLOSING)
        asked = self._page.epoch(0)
        connection.send(Message(MessageType.CLOSING, 0, asked).pack())
        while (data := self._hear(connection, _SECONDS)) != b"":
            if data is not None and Message.unpack(data).type is MessageType.DRAINED:
                return True
        return False

    @staticmethod
    def _hear(connection: socket.socket, seconds: float) -> bytes | None:
        """A message, b"" at the end, None when none came in time."""
        connection.settimeout(seconds)
        try:
            return connection.recv(MESSAGE.size)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""


if __name__ == "__main__":
    run()
