"""The daemon serves the earlier version's grants, pages and libraries.

The constants here are protocol 1, layout 1 and grant version 1 as they were published. They
never change with the code: a container that was started then uses them as long as it lives.
"""

import mmap
import struct
import time
from pathlib import Path

import pytest

from deadlines import eventually
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import read_status
from kubeshare.tokens.wire.protocol import PAGE_MAGIC, VERSION, GateState, GrantState, MessageType
from tokens.helpers import Client, RunningDaemon, grant, saturating

HEADER = struct.Struct("=QIIII40x")
CELL = struct.Struct("=IIQQQII16s8x")
HELLO = struct.Struct("=HHIIIQQ").pack(1, 1, 0, 0, 4711, 0, 1)
GPU = "GPU-00000000-0000-4000-8000-00000000000a"
GRANT = (
    b'{"version":1,"claim":"old","gpus":[{"uuid":"%s","memoryTotal":17179869184,'
    b'"request":600000,"limit":1000000,"memory":1073741824}]}' % GPU.encode()
)
EPOCH = 41
OPEN = 1


def left_behind(paths: Paths) -> Path:
    """A grant and its page, open, as the daemon before left them when it ended; the page."""
    paths.make()
    (paths.grants / "old.json").write_bytes(GRANT)
    folder = paths.claim("old")
    folder.mkdir()
    uuid = bytes.fromhex(GPU.removeprefix("GPU-").replace("-", ""))
    cell = CELL.pack(EPOCH, OPEN, time.monotonic_ns(), 2**30, 2**34, 600_000, 1_000_000, uuid)
    (folder / "page").write_bytes(HEADER.pack(PAGE_MAGIC, 1, 128, 1, GrantState.ACTIVE) + cell)
    return folder / "page"


def mapped(page: Path) -> mmap.mmap:
    """As a process has it that was started then."""
    with page.open("rb") as file:
        return mmap.mmap(file.fileno(), 128, prot=mmap.PROT_READ)


def old_library(paths: Paths) -> Client:
    client = Client(paths, "old", hello=False)
    client.socket.send(HELLO)
    welcome = client.receive()
    assert (welcome.type, welcome.value) == (MessageType.WELCOME, 1)
    return client


def test_a_daemon_goes_on_with_the_grant_and_the_page_of_the_version_before(paths: Paths) -> None:
    page = left_behind(paths)
    old = mapped(page)

    with RunningDaemon(paths):
        status = read_status(paths, "old")
        assert status is not None
        assert status.state == "ACTIVE"
        assert HEADER.unpack_from(old) == (PAGE_MAGIC, 1, 128, 1, GrantState.ACTIVE)
        epoch, gate, _, *bounds, uuid = CELL.unpack_from(old, HEADER.size)
        assert epoch > EPOCH, "who sleeps on the epoch from before must not take it for the same"
        assert (gate, bounds) == (GateState.CLOSED, [2**30, 2**34, 600_000, 1_000_000])
        assert uuid.hex() == GPU.removeprefix("GPU-").replace("-", "")
        client = old_library(paths)
        client.want()
        eventually(
            lambda: CELL.unpack_from(old, HEADER.size)[1] == GateState.OPEN, "its gate opens"
        )


@pytest.mark.usefixtures("patience")
def test_a_library_of_protocol_1_takes_turns_with_one_of_now(paths: Paths) -> None:
    left_behind(paths)
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("new", 0.4, quota_ns=20_000_000))
        with saturating(old_library(paths)), saturating(Client(paths, "new")):
            eventually(
                lambda: all(daemon.view(name)["drains"] >= 3 for name in ("old", "new")),
                "both have their turns",
            )
        assert daemon.view("old")["bypasses"] == 0


def test_a_page_of_another_layout_is_left_to_those_who_have_it(paths: Paths) -> None:
    """After the way back from a later version: what it laid out cannot be written by this one."""
    page = left_behind(paths)
    later = HEADER.pack(PAGE_MAGIC, VERSION + 1, 128, 1, GrantState.ACTIVE)
    page.write_bytes(later + page.read_bytes()[64:])
    known, before = mapped(page), page.stat().st_ino

    with RunningDaemon(paths) as daemon:
        assert known[:64] == later
        assert daemon.view("old")["state"] == "idle"
        assert page.stat().st_ino != before
        fresh = Client(paths, "old")
        fresh.open()
        assert known[:64] == later


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_library_of_another_layout_is_refused_and_no_one_else(
    daemon: RunningDaemon, version: int
) -> None:
    daemon.grant(grant("a"))
    other = Client(daemon.paths, "a", hello=False)
    other.socket.send(struct.pack("=H", version) + HELLO[2:])

    assert other.receive().type is MessageType.REFUSED
    eventually(lambda: other.is_dropped, "its connection is closed")
    Client(daemon.paths, "a").open()
