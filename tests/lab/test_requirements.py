"""Where the lab cannot run, it says what is missing."""

import io
import os
import shutil
from pathlib import Path

import pytest

from kubeshare.lab import requirements
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress, spell_seconds


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


def test_without_go_it_says_where_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda program: None)

    with pytest.raises(LabError, match=r"go\.dev"):
        binaries.containerd(Progress(io.StringIO()))


def test_the_version_of_kubernetes_is_read_from_the_module() -> None:
    go_mod = "require (\n\tk8s.io/kubectl v0.36.3\n\tk8s.io/kubernetes v1.36.3\n)\n"

    assert binaries.kubernetes_version(go_mod) == "v1.36.3"


def test_a_module_without_kubernetes_is_an_error() -> None:
    with pytest.raises(LabError, match=r"go\.mod"):
        binaries.kubernetes_version("module x\n")


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(0.25, "0.2 s"), (31.4, "31 s"), (465, "7 min 45 s"), (59.7, "1 min 00 s")],
)
def test_durations_read_as_people_write_them(seconds: float, spelled: str) -> None:
    assert spell_seconds(seconds) == spelled


def test_a_step_says_how_long_it_took() -> None:
    stream = io.StringIO()

    with Progress(stream).step("boil water"):
        pass

    assert stream.getvalue() == "lab: boil water: 0.0 s\n"
