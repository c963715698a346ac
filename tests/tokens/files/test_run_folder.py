"""The run folder of each user, and names of files in it."""

import os
from pathlib import Path

import pytest

from kubeshare.tokens.files.run_folder import (
    GrantError,
    Paths,
    check_claim,
    default_run_folder,
    write_whole,
)


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 128, "-", "a..b"])
def test_a_name_that_can_be_a_files_is_taken(name: str) -> None:
    assert check_claim(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "x" * 129, "a b", "ä", "a\n", "a\0"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(GrantError):
        check_claim(name)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()

    with pytest.raises(OSError, match="target"):
        write_whole(tmp_path / "target", b"x")

    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_the_run_folder_is_for_its_owner_only(paths: Paths) -> None:
    paths.make()

    assert paths.root.stat().st_mode & 0o777 == 0o700
    assert paths.claims.stat().st_mode & 0o777 == 0o700


def test_a_run_folder_of_another_user_is_not_used(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.make()
    monkeypatch.setattr(os, "geteuid", lambda: paths.root.stat().st_uid + 1)

    with pytest.raises(PermissionError, match="KUBESHARE_RUN"):
        paths.make()


@pytest.mark.parametrize(
    ("variables", "uid", "folder"),
    [
        ({"KUBESHARE_RUN": "/a"}, 0, "/a"),
        ({}, 0, "/run/kubeshare"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, 7, "/run/user/7/kubeshare"),
        ({}, 7, "/dev/shm/kubeshare-7"),
    ],
)
def test_each_user_has_a_run_folder(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], uid: int, folder: str
) -> None:
    for name in ("KUBESHARE_RUN", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    assert default_run_folder() == Path(folder)


def test_the_folders_above_the_run_folder_are_made(tmp_path: Path) -> None:
    nested = Paths(tmp_path / "not" / "there" / "run")
    for _ in range(2):
        nested.make()
    assert all(folder.is_dir() for folder in (nested.grants, *nested.made))
