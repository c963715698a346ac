"""Forks processes that have the driver's Python client loaded.

Loading the client takes several times as long as most such programs run. So one process loads it
and does nothing else; each program runs in a child of it, with its own environment.
"""

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it wrote."""

    code: int
    output: str
    errors: str


class Nursery:
    """The process that has the client loaded.

    Args:
        library_path: `LD_LIBRARY_PATH`, which counts only when a process begins.
    """

    def __init__(self, library_path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "LD_LIBRARY_PATH": library_path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.close)

    def run(self, program: str, environment: Mapping[str, str]) -> Ended:
        """Run a program in a process of its own; an interrupt ends the nursery too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([program, dict(environment)]) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except BaseException:
            nursery.cache_clear()
            self.close()
            raise
        return Ended(*answer)

    def close(self) -> None:
        """End it, with what it may still run."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@functools.cache
def nursery(library_path: str) -> Nursery:
    """The one nursery of this process for a library path."""
    return Nursery(library_path)


# ---- within the nursery -------------------------------------------------------------------------


def _live(program: str, environment: Mapping[str, str], output: int, errors: int) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _text(file: int) -> str:
    with os.fdopen(file, "rb") as written:
        written.seek(0)
        return written.read().decode()


def _serve() -> None:
    __import__("cuda.bindings.driver")
    for line in sys.stdin:
        program, environment = json.loads(line)
        output, errors = os.memfd_create("output"), os.memfd_create("errors")
        child = os.fork()
        if child == 0:
            _live(program, environment, output, errors)
        _, status = os.waitpid(child, 0)
        ended = [os.waitstatus_to_exitcode(status), _text(output), _text(errors)]
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
