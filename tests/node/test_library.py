"""The device library's installation on the node."""

from pathlib import Path
from typing import Any

import pytest

from kubeshare.node.library import LibraryError, install


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A library as an image has it."""
    file = tmp_path / "libkubeshare-vgpu.so"
    file.write_bytes(b"\x7fELF and so on")
    return file


def test_the_library_and_the_preload_file_that_names_it_are_installed(
    source: Path, tmp_path: Path
) -> None:
    installed = install(source, tmp_path / "lib")
    assert installed.library.read_bytes() == source.read_bytes()
    assert installed.library.stat().st_mode & 0o777 == 0o755
    assert installed.preload.read_text() == "/opt/kubeshare/libkubeshare-vgpu.so\n"


def test_another_version_never_changes_the_file_of_the_first(source: Path, tmp_path: Path) -> None:
    first = install(source, tmp_path / "lib").library
    inode = first.stat().st_ino
    source.write_bytes(b"\x7fELF and more")
    second = install(source, tmp_path / "lib").library
    assert second != first
    assert first.read_bytes() == b"\x7fELF and so on"
    assert first.stat().st_ino == inode


def test_installing_again_leaves_the_file_and_nothing_else(source: Path, tmp_path: Path) -> None:
    first = install(source, tmp_path / "lib").library
    inode = first.stat().st_ino
    again = install(source, tmp_path / "lib").library
    assert again.stat().st_ino == inode
    assert sorted(file.name for file in again.parent.iterdir()) == [
        "ld.so.preload",
        "libkubeshare-vgpu.so",
    ]


def test_a_file_that_was_cut_short_is_replaced(source: Path, tmp_path: Path) -> None:
    broken = install(source, tmp_path / "lib").library
    broken.write_bytes(b"\x7fEL")
    assert install(source, tmp_path / "lib").library.read_bytes() == source.read_bytes()


def test_a_place_from_which_nothing_can_be_executed_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(LibraryError, match="noexec"):
        install(source, tmp_path / "lib")


def test_a_place_that_cannot_be_written_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("a file where the folder should be")
    with pytest.raises(LibraryError, match="cannot be installed"):
        install(source, tmp_path / "lib")
