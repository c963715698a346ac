"""Installs pinned Python packages into a folder, by their hashes."""

import shutil
import subprocess
import sys
from pathlib import Path

from kubeshare.lab.errors import LabError


def install(requirements: Path, target: Path, what: str, platform: str | None = None) -> None:
    """Install what a requirements file pins, for the image's Python.

    Args:
        requirements: the file, with hashes.
        target: the folder.
        what: for the error.
        platform: another than this machine's, as uv names it.

    Raises:
        LabError: uv is missing, or it failed; the message has its last words.
    """
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise LabError("uv is not in the Python environment: run `make setup`")
    command = [uv, "pip", "install", "--quiet", "--python-version=3.11", "--no-build"]
    if platform is not None:
        command.append(f"--python-platform={platform}")
    source = ["--require-hashes", f"--target={target}", "--requirement", str(requirements)]
    done = subprocess.run([*command, *source], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"installing {what} failed; uv's last words: {done.stderr[-800:].strip()}")
