"""What a result was made from: seeds, commit and machine."""

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

import kubeshare
from kubeshare.simulator.figures.figure import Quoted

CLONE: Final = Path(kubeshare.__file__).parents[2]
"""The clone that this package is of, where it is of one."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a result was made from.

    Attributes:
        seeds: how many runs were drawn where the papers draw one.
        version: of KubeShare; "" of a kept result.
        date: when it began, or when the kept result was measured.
        commit: of the clone, with ``-dirty`` where it has changes that are not committed; of a
            kept result the commit that it was measured of; "" without a clone.
        machine: system, processor kind and number of cores.
        python: its version; "" of a kept result.
    """

    seeds: int
    version: str
    date: str
    commit: str
    machine: str
    python: str

    @classmethod
    def here(cls, seeds: int) -> Self:
        """Of this machine and this clone."""
        return cls(
            seeds=seeds,
            version=kubeshare.__version__,
            date=datetime.now(UTC).date().isoformat(),
            commit=_git("describe", "--always", "--dirty", "--exclude=*"),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            python=platform.python_version(),
        )

    def quoting(self, kept: Quoted) -> "Provenance":
        """Of a figure that quotes a result, which neither this commit nor this machine made."""
        return Provenance(
            seeds=self.seeds,
            version="",
            date=kept.date,
            commit=kept.commit,
            machine=kept.machine,
            python="",
        )


def _git(*words: str) -> str:
    """What git says of the clone; "" without git or a clone."""
    git = shutil.which("git")
    if git is None or not (CLONE / ".git").exists():
        return ""
    command = [git, "-C", str(CLONE), *words]
    found = subprocess.run(  # noqa: S603 - words of this module
        command, capture_output=True, text=True, check=False, timeout=10
    )
    return found.stdout.strip()
