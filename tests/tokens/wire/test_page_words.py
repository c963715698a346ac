"""The page is whole for whoever looks at it: it is written by words, never cleared before."""

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshare.tokens.wire.page import PageWriter
from kubeshare.tokens.wire.protocol import PAGE_CELL, PAGE_HEADER
from tokens.helpers import grant

_SHARE = grant("a").gpus[0]
IMPOSSIBLE: Any = SimpleNamespace(
    gpus=[
        SimpleNamespace(
            uuid=_SHARE.uuid,
            most_memory_bytes=_SHARE.most_memory_bytes,
            gpu_memory_bytes=_SHARE.gpu_memory_bytes,
            request_micros=_SHARE.request_micros,
            limit_micros=-1,
        )
    ]
)
"""It ends a write in the middle, where what would be seen then can be looked at."""


@pytest.mark.parametrize(
    "write",
    [
        lambda writer, _: writer.change(IMPOSSIBLE),
        lambda writer, _: writer.set_use(0, 7, -1),
        lambda _, path: PageWriter(path, IMPOSSIBLE),
    ],
    ids=["other amounts", "what was used", "by the next daemon"],
)
def test_what_a_write_has_not_come_to_is_as_it_was(
    tmp_path: Path, write: Callable[[PageWriter, Path], object]
) -> None:
    path = tmp_path / "page"
    writer = PageWriter(path, grant("a"))
    writer.set_overhead(0, 5)
    writer.set_use(0, 7, 7)
    before = path.read_bytes()

    with pytest.raises((struct.error, ValueError, TypeError)):
        write(writer, path)

    assert path.read_bytes() == before


def test_the_parts_of_a_page_are_whole_words() -> None:
    assert PAGE_HEADER.size % 8 == PAGE_CELL.size % 8 == 0
