"""The memory that processes report."""

import ctypes
import fcntl
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from deadlines import eventually
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.counters import FILE_BYTES_MAX, CountersReader
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import COUNTERS_HEADER, COUNTERS_SIZE
from tokens.helpers import RunningDaemon, grant, lease_of, prepared


def test_memory_that_processes_say_they_use_is_shown(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    with prepared(
        "import fcntl, os, struct, sys\n"
        f"file = os.open({str(daemon.paths.counters('a'))!r}, os.O_RDWR)\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 64)\n"
        "os.pwrite(file, struct.pack('=II56xQ', 1, 7, 12345), 64)\n"
    ):
        eventually(lambda: daemon.view("a")["memoryUsedBytes"] == 12345, "it is shown")

    eventually(lambda: daemon.view("a")["memoryUsedBytes"] == 0, "it counts no more")


def test_counters_that_somebody_cut_short_count_as_nothing(tmp_path: Path) -> None:
    counters.make(tmp_path / "counters")
    os.truncate(tmp_path / "counters", 100)

    assert counters.read(tmp_path / "counters")[0] == counters.Usage(0, 0)


@pytest.fixture
def costly(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """The counters of claim `a` have a slot in use, and any read of a slot takes too long."""
    paths.make()
    counters.make(paths.counters("a"))
    with paths.counters("a").open("r+b") as file:
        file.seek(COUNTERS_HEADER.size)
        file.write(b"\1")
    monkeypatch.setattr(counters, "BUDGET_NS", 0)
    return paths


def test_a_file_that_takes_too_long_to_read_is_given_up(costly: Paths) -> None:
    with pytest.raises(counters.CostlyCountersError):
        counters.processes(costly.counters("a"))


def test_a_claim_whose_file_takes_too_long_is_left_out_for_a_minute_and_told_of(
    costly: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    reads: list[Path] = []
    real = counters.processes

    def read(path: Path) -> list[counters.Process]:
        reads.append(path)
        return real(path)

    monkeypatch.setattr(counters, "processes", read)
    reader = CountersReader(costly, clock=lambda: now)
    with capture_logs() as logs:
        for now in (0.0, 1.0, 59.0):  # noqa: B007  the clock
            assert reader.processes("a") == []
        assert (len(reads), reader.skipped()) == (1, 1)
        now = 61.0
        assert reader.skipped() == 0
        reader.processes("a")
    assert len(reads) == 2
    assert [(each["log_level"], each["claim"]) for each in logs] == [("warning", "a")] * 2


@pytest.mark.parametrize("keeps_size", [False, True])
def test_a_file_that_a_container_has_made_too_large_is_cut_back(
    paths: Paths, *, keeps_size: bool
) -> None:
    paths.make()
    file = paths.counters("a")
    counters.make(file)
    with file.open("r+b") as opened:
        fill(opened.fileno(), 16 * FILE_BYTES_MAX, keeps_size=keeps_size)
    reader = CountersReader(paths, clock=lambda: 0.0)
    with capture_logs() as logs:
        for _ in range(2):
            assert reader.processes("a") == []
    assert file.stat().st_size >= COUNTERS_SIZE
    assert file.stat().st_blocks * 512 <= FILE_BYTES_MAX
    assert [(each["log_level"], each["claim"]) for each in logs] == [("warning", "a")]


def test_no_reader_waits_for_a_lease_that_a_container_holds(paths: Paths) -> None:
    paths.make()
    file = paths.counters("a")
    counters.make(file)
    os.truncate(file, 2 * FILE_BYTES_MAX)
    with lease_of(file) as holder:
        assert CountersReader(paths).processes("a") == []
        with pytest.raises(BlockingIOError):
            counters.make(file)
        assert holder.poll() is None, "else nobody would have had to wait"
    assert counters.cut(file)


def test_no_container_gets_a_lease_of_what_a_daemon_serves(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    for file in (daemon.paths.counters("a"), daemon.paths.claim("a") / "page"):
        for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
            opened = os.open(file, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.fcntl(opened, fcntl.F_SETLEASE, kind)
            os.close(opened)


def fill(file: int, size: int, *, keeps_size: bool) -> None:
    """Take so many bytes for a file, behind its end if it keeps its size."""
    mode = 1 if keeps_size else 0  # FALLOC_FL_KEEP_SIZE
    libc = ctypes.CDLL(None, use_errno=True)
    offsets = [ctypes.c_long(0), ctypes.c_long(size)]
    assert libc.fallocate(file, mode, *offsets) == 0, os.strerror(ctypes.get_errno())
