"""Which grant files came, changed and went between two scans."""

import os
from pathlib import Path

import pytest

from kubeshare.tokens.files.grant_folder import Changes, GrantFolder
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import State, Status, write_status


def write(paths: Paths, claim: str, age: int, text: str = "{}") -> Path:
    """A grant file that is so many seconds old."""
    path = paths.grant(claim)
    path.write_text(text)
    os.utime(path, ns=(0, (1_000_000 - age) * 10**9))
    return path


def test_what_was_active_comes_first_and_then_what_is_older(paths: Paths) -> None:
    paths.make()
    states: dict[str, State] = {"old": "REFUSED", "young": "ACTIVE", "middle": "ACTIVE"}
    for claim, age in (("young", 1), ("old", 9), ("middle", 5), ("new", 0), ("older", 10)):
        write(paths, claim, age)
        if claim in states:
            write_status(paths, Status(claim=claim, state=states[claim]))
    write(paths, "broken", 99)
    paths.status("broken").write_text("ACTIVE")
    folder = GrantFolder(paths)
    found = folder.scan()
    folder.close()
    order = [path.stem for path in found.new]
    assert order[:2] == ["middle", "young"]
    assert [claim for claim in order[2:] if claim != "broken"] == ["older", "old", "new"]
    assert (found.gone, found.changed) == ([], [])


def test_a_scan_reports_what_differs_from_the_last_one(paths: Paths) -> None:
    paths.make()
    kept, changed, gone = (write(paths, claim, 1) for claim in ("a", "b", "c"))
    (paths.grants / "notes.txt").write_text("")
    (paths.grants / ".d.json.7").write_text("")
    (paths.grants / ".e.json").write_text("")
    folder = GrantFolder(paths)
    assert set(folder.scan().new) == {kept, changed, gone}
    assert folder.scan() == Changes([], [], [])
    write(paths, "b", 1, text="{ }")
    gone.unlink()
    come = write(paths, "f", 1)
    assert folder.scan() == Changes(gone=[gone], changed=[changed], new=[come])
    folder.close()


def test_a_folder_that_was_removed_cannot_be_scanned(paths: Paths) -> None:
    paths.make()
    folder = GrantFolder(paths)
    paths.grants.rmdir()
    with pytest.raises(FileNotFoundError):
        folder.scan()
    folder.close()


def test_another_folder_in_its_place_is_not_taken_for_it(paths: Paths) -> None:
    paths.make()
    folder = GrantFolder(paths)
    write(paths, "a", 1)
    assert len(folder.scan().new) == 1
    paths.grant("a").unlink()
    paths.grants.rmdir()
    paths.make()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            folder.scan()
    folder.close()


def test_what_is_left_of_grants_that_have_ended_is_swept_up(paths: Paths) -> None:
    paths.make()
    write(paths, "a", 1)
    for claim in ("a", "gone", "gone.share"):
        paths.claim(claim).mkdir()
        (paths.claim(claim) / "page").write_bytes(b"")
        paths.counters(claim).write_bytes(b"")
        write_status(paths, Status(claim=claim, state="ACTIVE"))
    folder = GrantFolder(paths)
    folder.sweep()
    folder.close()
    left = [each.name for made in paths.made for each in made.iterdir()]
    assert sorted(left) == ["a", "a", "a.json"]
