"""Folders of thousands of files that nobody writes to any more."""

from pathlib import Path

from kubeshare.lab import files


def test_a_folder_goes_with_all_in_it_and_nothing_else(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    for inside in (kept, folder / "a" / "b", folder / "empty"):
        inside.mkdir(parents=True)
        (inside / "file").touch()
    (folder / "link").symlink_to(kept)
    (folder / "a" / "link").symlink_to(kept / "file")

    files.remove(folder)

    assert not folder.exists()
    assert (kept / "file").exists()


def test_a_folder_that_is_not_there_is_gone_already(tmp_path: Path) -> None:
    files.remove(tmp_path / "none")
