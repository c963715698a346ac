"""The daemon's counts, as other programs read them."""

from pathlib import Path

import pytest

from kubeshare.core.token import Tally
from kubeshare.tokens.files import tallies


def test_the_saved_counts_are_read_by_cell(tmp_path: Path) -> None:
    file = tallies.Tallies(tmp_path / "a", 2)
    file.write(1, Tally(charged_ns=7, longest_wait_ns=9))
    assert tallies.read(tmp_path / "a") == (Tally(), Tally(charged_ns=7, longest_wait_ns=9))


@pytest.mark.parametrize("data", [None, b"", b"x" * 16, b"\0" * 144])
def test_what_is_no_file_of_counts_has_none(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "a").write_bytes(data)
    assert tallies.read(tmp_path / "a") == ()


def test_a_file_that_is_cut_off_has_none(tmp_path: Path) -> None:
    tallies.Tallies(tmp_path / "a", 2)
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "b").write_bytes(whole[:-1])
    assert tallies.read(tmp_path / "b") == ()
