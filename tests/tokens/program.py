"""The daemon as a program of its own."""

import subprocess
import sys

from kubeshare.tokens.files import Paths


def start_program(paths: Paths, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
