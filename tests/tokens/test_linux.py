"""The Linux calls through ctypes."""

import ctypes
import mmap
import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens.linux import FolderWatch, Timer, futex_wake
from kubeshare.tokens.wire.rate import Rate


def readable(fd: int, seconds: float) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])


def test_a_timer_fires_at_its_time_and_not_before() -> None:
    timer = Timer()
    at = time.monotonic_ns() + 20_000_000
    timer.set(at)

    assert readable(timer.fd, DEADLINE_S)
    assert time.monotonic_ns() >= at
    timer.set(None)
    assert not readable(timer.fd, 0)
    timer.close()


def test_a_time_that_is_past_fires_at_once_and_none_never() -> None:
    timer = Timer()
    timer.set(-5)
    assert readable(timer.fd, DEADLINE_S)

    timer.set(1)
    timer.set(None)
    assert not readable(timer.fd, 0)
    timer.close()


def test_a_timer_that_fired_and_is_set_anew_fires_for_the_new_time() -> None:
    timer = Timer()
    timer.set(1)
    assert readable(timer.fd, DEADLINE_S)
    timer.set(time.monotonic_ns() + 3_600_000_000_000)

    assert not readable(timer.fd, 0)
    timer.close()


def test_a_folder_says_when_files_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    (tmp_path / "new").write_text("x")
    watch = FolderWatch(folder)

    (tmp_path / "new").rename(folder / "new")
    assert readable(watch.fd, DEADLINE_S)
    watch.clear()
    assert not readable(watch.fd, 0)

    (folder / "new").unlink()
    assert readable(watch.fd, DEADLINE_S)
    watch.close()


SLEEPER = """
import ctypes, sys
file = open(sys.argv[1], "rb")
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file.fileno(), ctypes.c_long(0))
print("asleep", flush=True)
sys.exit(libc.syscall(202, ctypes.c_void_p(at), 0, 0, None, None, 0))
"""


def test_a_sleeper_on_a_read_only_mapping_is_woken(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(bytes(4096))
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, str(page)], stdout=subprocess.PIPE)
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == b"asleep\n"
    file = os.open(page, os.O_RDWR)
    mapped = mmap.mmap(file, 4096)
    os.close(file)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))

    def is_woken() -> bool:
        futex_wake(address)
        return sleeper.poll() is not None

    eventually(is_woken, "the sleeper is woken")
    assert sleeper.returncode == 0
    assert struct.unpack_from("I", mapped)[0] == 0


def test_a_rate_allows_a_burst_and_then_its_pace() -> None:
    rate = Rate(10, 3, 0)

    assert [rate.allows(0) for _ in range(4)] == [True, True, True, False]
    assert [rate.allows(200_000_000) for _ in range(3)] == [True, True, False]
