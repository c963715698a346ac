"""What a daemon does with the page of an earlier or a later one."""

from pathlib import Path

import pytest

from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare
from kubeshare.tokens.wire.page import PageWriter, read_page
from kubeshare.tokens.wire.protocol import (
    OVERSUBSCRIBED_OFFSET,
    PAGE_CELL,
    PAGE_EXTENSION,
    PAGE_HEADER,
    PAGE_MAGIC,
    VERSION,
    GrantState,
)

EXTENSION = PAGE_HEADER.size + PAGE_CELL.size
USE = (12_345, 250_000)


GPU = "GPU-00000000-0000-0000-0000-000000000001"


@pytest.fixture
def grant() -> Grant:
    share = GrantedShare(
        uuid=GPU,
        memory_total_bytes=16,
        request_micros=500_000,
        limit_micros=1_000_000,
        memory_bytes=8,
    )
    return Grant(version=GRANT_VERSION, claim="claim", gpus=(share,))


def test_what_another_daemon_wrote_into_an_extension_does_not_outlive_it(
    tmp_path: Path, grant: Grant
) -> None:
    path = tmp_path / "page"
    PageWriter(path, grant)
    later = b"\xff" * PAGE_EXTENSION.size
    used = PAGE_EXTENSION.pack(*USE, 0, 0)[:OVERSUBSCRIBED_OFFSET]
    with path.open("r+b") as file:
        file.seek(EXTENSION)
        file.write(used + later[OVERSUBSCRIBED_OFFSET:])
    PageWriter(path, grant)
    written = path.read_bytes()[EXTENSION : EXTENSION + PAGE_EXTENSION.size]
    assert written == PAGE_EXTENSION.pack(*USE, False, 8)


def test_a_page_says_what_may_start_and_how_much(tmp_path: Path, grant: Grant) -> None:
    path = tmp_path / "page"
    path.touch()
    assert read_page(path) is None
    PageWriter(path, grant).set_grant_state(GrantState.ACTIVE)
    assert read_page(path) == (GrantState.ACTIVE, ((GPU, 500_000, 8, 8),))


@pytest.mark.parametrize(
    "broken",
    [
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION + 1, 64, 0, GrantState.ACTIVE, 64),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 128, 1, GrantState.ACTIVE, 128),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 64, 0, 99, 64),
        b"?",
    ],
    ids=["another layout", "cut off", "no state", "too short"],
)
def test_a_page_of_another_layout_is_not_read(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "page").write_bytes(broken)
    with pytest.raises(ValueError):  # noqa: PT011  of several kinds
        read_page(tmp_path / "page")
