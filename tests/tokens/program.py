"""The daemon as a program of its own."""

import subprocess
import sys
from pathlib import Path

from kubeshare.tokens.files.run_folder import Paths


def start_program(paths: Paths, *options: str, stdout: Path | None = None) -> subprocess.Popen[str]:
    """Start it; what it logs goes into a pipe or, that it may log for long, into a file."""
    command = [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root), *options]
    if stdout is None:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with stdout.open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True)
