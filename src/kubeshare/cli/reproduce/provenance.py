"""What a result was made from: seeds, commit and machine."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final, Self

import msgspec

import kubeshare

CLONE: Final = Path(kubeshare.__file__).parents[2]
"""The clone that this package is of, where it is of one."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a result was made from.

    Attributes:
        seeds: how many runs were drawn where the papers draw one.
        version: of KubeShare.
        commit: of the clone; "" without one.
        machine: system, processor kind and number of cores.
        python: its version.
    """

    seeds: int
    version: str
    commit: str
    machine: str
    python: str

    @classmethod
    def here(cls, seeds: int) -> Self:
        """Of this machine and this clone."""
        return cls(
            seeds=seeds,
            version=kubeshare.__version__,
            commit=_commit(),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            python=platform.python_version(),
        )


def _commit() -> str:
    git = shutil.which("git")
    if git is None or not (CLONE / ".git").exists():
        return ""
    command = [git, "-C", str(CLONE), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(  # noqa: S603 - fixed words
        command, capture_output=True, text=True, check=False, timeout=10
    )
    return found.stdout.strip()
