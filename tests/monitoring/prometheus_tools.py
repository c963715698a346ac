"""Prometheus and promtool, which ``make test`` installs from Debian's package ``prometheus``."""

import shutil
import subprocess

import pytest


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; the test fails where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed: run `make prometheus`, which needs Debian and root")
    return found


def promtool(*arguments: str, text: str = "") -> None:
    """Run promtool, which must find nothing wrong."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
