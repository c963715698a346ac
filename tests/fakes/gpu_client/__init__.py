"""A process that uses the fake GPU, step by step."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fakes.gpu_client.drive import drive
from kubeshare import fakegpu

__all__ = ["Client", "drive"]


class Client:
    """A process with a context on GPU 0.

    Args:
        state: the state folder that it shares with others.
        profile: of the machine.
        extra: more variables of its environment.
    """

    def __init__(
        self, state: Path, profile: str = "V100x1", extra: Mapping[str, str] | None = None
    ) -> None:
        variables = fakegpu.environment(profile, state)
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("server.py")],
            env={**os.environ, **variables, **(extra or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def send(self, method: str, *arguments: Any) -> None:
        """Ask for a step without waiting for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The answer to the oldest step that has not been answered."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client is gone"
        return json.loads(line)

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Do a step: a method of :class:`fakes.gpu_client.server.Gpu`."""
        self.send(method, *arguments)
        return self.receive()

    def kill(self) -> None:
        """End the process as nothing in it can prevent."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
