"""Which processes have a file mapped."""

import mmap
import os
from pathlib import Path

from kubeshare.node.escapes.file_mappings import has_mapped


def test_a_process_that_maps_a_file_is_known_by_the_file_and_not_by_a_name(tmp_path: Path) -> None:
    mapped, other = tmp_path / "counters", tmp_path / "other"
    for file in (mapped, other):
        file.write_bytes(bytes(8))
    with mapped.open("r+b") as opened, mmap.mmap(opened.fileno(), 8):
        assert has_mapped(os.getpid(), mapped)
        assert not has_mapped(os.getpid(), other)
        mapped.rename(tmp_path / "moved")
        other.rename(mapped)
        assert has_mapped(os.getpid(), tmp_path / "moved")
        assert not has_mapped(os.getpid(), mapped)
    assert not has_mapped(os.getpid(), tmp_path / "moved")


def test_a_file_or_a_process_that_is_gone_is_not_mapped(tmp_path: Path) -> None:
    file = tmp_path / "counters"
    assert not has_mapped(os.getpid(), file)
    file.write_bytes(bytes(8))
    assert not has_mapped(7, file, proc=tmp_path)
