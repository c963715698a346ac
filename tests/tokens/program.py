"""Starts the token daemon as a program."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kubeshare.tokens.files.run_folder import Paths

_LISTENS = "0A"
"""The state of a listening socket in `/proc/net/tcp`."""


def start_program(
    paths: Paths, *options: str, stdout: Path | None = None, before: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start it; what it logs goes into a pipe or, that it may log for long, into a file.

    ``before`` is a program that becomes it.
    """
    command = [*before, sys.executable, "-m", "kubeshare.tokens"]
    command += ["--run-folder", str(paths.root), *options]
    if stdout is None:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with stdout.open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True)


def listening_port(pid: int) -> int | None:
    """The TCP port on which a process listens; None as long as it does not.

    A program that chooses its port itself (`--port 0`) meets no other one on this machine.
    """
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            inodes.add(file.readlink().name.removeprefix("socket:[").removesuffix("]"))
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, address, _, state, *_, inode = line.split()[:10]
        if state == _LISTENS and inode in inodes:
            return int(address.rpartition(":")[2], 16)
    return None
