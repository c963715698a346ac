"""A test's fake machine, and a GPU program that it commands."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self, cast

import pytest

from deadlines import DEADLINE_S
from fakes.session.session import MIB
from kubeshare import native
from kubeshare.tokens.files.grants import GrantedShare

Answer = dict[str, Any]

_VARIANT = "KUBESHARE_NATIVE_VARIANT"
_KEPT = ("PATH", "HOME", "LANG", "QEMU_LD_PREFIX")
"""What programs of a test have of its environment."""


runs_python: Final = pytest.mark.skipif(
    os.environ.get(_VARIANT) == "aarch64", reason="the emulated machine has no Python"
)
"""For a test whose program under the library is Python."""


class Probe:
    """A running probe; commands and answers as in `native/tests/probe.c`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def send(self, *words: object) -> None:
        """Send a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def answer(self, within_s: float = DEADLINE_S) -> Answer:
        """The answer to the oldest command that has none yet."""
        deadline = time.monotonic() + within_s
        while b"\n" not in self._buffer:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"no answer; standard error: {self.errors()}")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast("Answer", json.loads(line))

    def do(self, *words: object, expect: int | None = 0) -> Answer:
        """Give a command, and return its answer; `expect` is the result it must have."""
        self.send(*words)
        answer = self.answer()
        assert expect is None or answer["result"] == expect, (words, answer)
        return answer

    def is_silent(self) -> bool:
        """Whether the last command has no answer yet."""
        return b"\n" not in self._buffer and not self._readable(0)

    def kill(self) -> None:
        """End it at once, as the kernel does: nothing of it runs any more."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self) -> int:
        """Let it come to its own end; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)

    def errors(self) -> str:
        """What it wrote to standard error; it must have ended, or be about to."""
        self.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def _readable(self, within_s: float) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], max(within_s, 0))[0])

    def _read(self, within_s: float) -> bool:
        assert self.process.stdout is not None
        if within_s <= 0 or not self._readable(within_s):
            return False
        data = os.read(self.process.stdout.fileno(), 65536)
        self._buffer += data
        return bool(data)


class Machine:
    """Fake GPUs of a test's own.

    Args:
        state: folder of their state, on tmpfs.
        profile: as `FAKEGPU_PROFILE`.
        variant: of the native build: empty, the sanitizer that it was built with, or ``aarch64``,
            whose programs an emulator runs. By default that of `make native-aarch64`, or none.
    """

    def __init__(
        self, state: Path, profile: str = "V100x1", variant: str = os.environ.get(_VARIANT, "")
    ) -> None:
        self._build = native.folder() / variant
        self._emulator = ["qemu-aarch64"] if variant == "aarch64" else []
        self._state = state
        self._profile = profile

    def environment(self) -> dict[str, str]:
        """What a program needs to find these GPUs, and not the machine's own."""
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        return kept | {
            "LD_LIBRARY_PATH": str(self._build / "fakegpu"),
            "FAKEGPU_STATE": str(self._state),
            "FAKEGPU_PROFILE": self._profile,
        }

    @property
    def library(self) -> Path:
        """The device library."""
        return self.path(native.DEVICE_LIBRARY)

    def path(self, name: str) -> Path:
        """A file or folder of this machine's build, as of `native.path`."""
        return self._build / name

    def stat(self) -> dict[str, Any]:
        """The engine's own truth, as `fakegpu-stat` prints it."""
        done = subprocess.run(
            [*self._emulator, self._build / "fakegpu-stat"],
            env=self.environment(),
            capture_output=True,
            check=True,
            timeout=DEADLINE_S,
        )
        return cast("dict[str, Any]", json.loads(done.stdout))

    def gpu(self, index: int = 0) -> dict[str, Any]:
        """What the engine knows of one GPU."""
        return cast("dict[str, Any]", self.stat()["gpus"][index])

    def grant(
        self, index: int = 0, *, memory: int = 1024 * MIB, request: int = 300_000
    ) -> GrantedShare:
        """A share of one of these GPUs."""
        gpu = self.gpu(index)
        return GrantedShare(
            uuid=gpu["uuid"],
            memory_total_bytes=gpu["total_memory"],
            request_micros=request,
            limit_micros=1_000_000,
            memory_bytes=memory,
        )

    def start(
        self,
        environment: Mapping[str, str],
        path: str = "dlsym",
        *,
        preload: str | None = None,
    ) -> Probe:
        """Start a probe under the device library.

        Args:
            environment: of the claim.
            path: by which it gets the driver's functions.
            preload: what is preloaded instead of the library alone.
        """
        program = "probe-linked" if path == "direct" else "probe"
        return self.run([program, path], environment, preload=preload)

    def run(
        self,
        command: list[str],
        environment: Mapping[str, str],
        *,
        preload: str | None = None,
    ) -> Probe:
        """Start another of `native/tests` that takes lines and answers in JSON."""
        program = [str(self._build / "tests" / command[0]), *command[1:]]
        settings = self.environment() | dict(environment)
        preloaded = str(self.library) if preload is None else preload
        if self._emulator:  # which itself is not to load it
            program = [*self._emulator, "-E", f"LD_PRELOAD={preloaded}", *program]
        else:
            settings["LD_PRELOAD"] = preloaded
        return Probe(
            subprocess.Popen(
                program,
                env=settings,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )


def eventually(condition: Callable[[], bool], within_s: float = DEADLINE_S) -> bool:
    """Poll until a condition holds; False if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)  # the programs that it waits for need the processors
    return True
