"""Runs a command that leaves the processors to all other programs.

Linux divides the processors by control group and by session first, and by nice value only within
one of them: beside a lab, whose programs are in another group, a low priority alone has no
effect. So the command and all that it starts are put into a group of little weight. Where this
user may not make one, only the priority is low.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubeshare.lab.node import cgroups

NICE: Final = 19
WEIGHTS: Final = {"cpu.shares": "256", "cpu.weight": "25"}
"""The file of a group's weight, of each version -> a quarter of what groups have by default."""


def join(group: str, root: Path) -> None:
    """Put this process into a group of little weight; into none where that is not allowed."""
    with suppress(OSError):
        cgroups.make(group, root)
        for folder in cgroups.folders(group, root):
            for file, weight in WEIGHTS.items():
                if (folder / file).exists():
                    (folder / file).write_text(weight)
                    (folder / "cgroup.procs").write_text(str(os.getpid()))


def run(command: Sequence[str], root: Path = cgroups.ROOT) -> int:
    """Run a command in the background; returns its exit status, or minus the signal that ended it.

    What ends this process on request (SIGTERM) ends the command.

    Args:
        command: the program and its arguments.
        root: of the control groups.
    """
    group = f"kubeshare-background-{os.getpid()}"

    def prepare() -> None:
        os.nice(NICE)
        join(group, root)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with subprocess.Popen(command, preexec_fn=prepare) as process:  # noqa: PLW1509  no threads
            signal.signal(signal.SIGTERM, lambda *_: process.terminate())
            return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        for folder in cgroups.folders(group, root):
            # A process that the command has left behind keeps it.
            with suppress(OSError):
                folder.rmdir()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
