"""Where the lab cannot run, it says what is missing."""

import io
import os
import shutil
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


def test_on_debian_what_is_missing_is_installed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "boiler"
    installer = tmp_path / "apt-get"
    installer.write_text(f'#!/bin/sh\n[ "$1" != install ] || touch {program}\n')
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "PACKAGES", {str(program): "tea-boiler"})
    monkeypatch.setattr(requirements, "DEBIAN", tmp_path)
    monkeypatch.setattr(requirements, "check_namespaces", lambda: None)
    said = io.StringIO()

    requirements.check(Progress(said))

    assert "install tea-boiler from Debian" in said.getvalue()
