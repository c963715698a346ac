"""What a daemon does with the page of an earlier or a later one."""

from pathlib import Path

from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare
from kubeshare.tokens.wire.page import PageWriter
from kubeshare.tokens.wire.protocol import PAGE_CELL, PAGE_EXTENSION, PAGE_HEADER, PAGE_USE

EXTENSION = PAGE_HEADER.size + PAGE_CELL.size
USE = (12_345, 250_000)


def test_what_another_daemon_wrote_into_an_extension_does_not_outlive_it(tmp_path: Path) -> None:
    path = tmp_path / "page"
    share = GrantedShare(
        uuid="GPU-00000000-0000-0000-0000-000000000001",
        memory_total_bytes=16,
        request_micros=500_000,
        limit_micros=1_000_000,
        memory_bytes=8,
    )
    grant = Grant(version=GRANT_VERSION, claim="claim", gpus=(share,))
    PageWriter(path, grant)
    later = b"\xff" * PAGE_EXTENSION.size
    with path.open("r+b") as file:
        file.seek(EXTENSION)
        file.write(PAGE_USE.pack(*USE) + later[PAGE_USE.size :])
    PageWriter(path, grant)
    written = path.read_bytes()[EXTENSION : EXTENSION + PAGE_EXTENSION.size]
    assert written == PAGE_USE.pack(*USE) + bytes(PAGE_EXTENSION.size - PAGE_USE.size)
