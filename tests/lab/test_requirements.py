"""Where the lab cannot run, it says what is missing."""

import io
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubeshare.lab import requirements
from kubeshare.lab.errors import LabError
from kubeshare.lab.progress import Progress


def test_without_root_it_says_so_and_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(LabError, match=r"root: use sudo, or .* KUBECONFIG") as refused:
        requirements.check(Progress(io.StringIO()))

    assert refused.value.exit_code == 3


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: None)

    with pytest.raises(LabError, match=r"needs runc, .*from the packages runc "):
        requirements.check(Progress(io.StringIO()))


@pytest.fixture
def installations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this Debian's apt-get, which refuses to run beside another, notes what it installs."""
    notes, lock, program = tmp_path / "installed", tmp_path / "dpkg", tmp_path / "boiler"
    installer = tmp_path / "apt-get"
    installer.write_text(
        f"#!/bin/sh\ncase $* in *install*) ;; *) exit 0 ;; esac\n"
        f"mkdir {lock} || exit 100\nsleep .2\n"
        f'echo "$@" >> {notes}\ntouch {program}\nrmdir {lock}\n'
    )
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "PACKAGES", {str(program): "tea-boiler"})
    monkeypatch.setattr(requirements, "DEBIAN", tmp_path)
    monkeypatch.setattr(requirements, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(requirements, "check_namespaces", lambda: None)
    return notes


def test_on_debian_what_is_missing_is_installed_and_named(installations: Path) -> None:
    said = io.StringIO()

    requirements.check(Progress(said))

    assert "install tea-boiler from Debian" in said.getvalue()
    assert "tea-boiler" in installations.read_text()


def test_labs_that_start_together_install_once(installations: Path) -> None:
    with ThreadPoolExecutor(3) as labs:
        for done in [labs.submit(requirements.check, Progress(io.StringIO())) for _ in range(3)]:
            done.result()

    assert len(installations.read_text().splitlines()) == 1
