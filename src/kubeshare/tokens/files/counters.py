"""The memory that a claim's processes report, which is not trusted.

Each process has a slot and holds record locks on its first two bytes while it lives; the
values that a dead process left in its slot do not count. The kernel says which process
holds the lock of the first byte, not the container. A process that closes the file loses
that lock, though not the one of the second byte, which belongs to the open file.
"""

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import (
    CELLS_MAX,
    COUNTERS_HEADER,
    COUNTERS_MAGIC,
    COUNTERS_SIZE,
    COUNTERS_SLOT,
    PROCESSES_MAX,
    VERSION,
)

log = structlog.get_logger(__name__)

BUDGET_NS: Final = 20_000_000
"""CPU time for one read of a file; 256 processes take a tenth of it. The kernel searches all locks
of a file for each slot, and a container may set as many as it likes."""
PAUSE_SECONDS: Final = 60.0
"""For how long a file that took too long is not read."""
FILE_BYTES_MAX: Final = 512 * 1024
"""What a container makes larger is cut back to that; later releases may use more than this."""

_MODE = 0o666
# A container may hold a lease of the file (fcntl(2)), for which an open would wait 45 s.
_OPEN: Final = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")


class CostlyCountersError(Exception):
    """A file takes too long to read."""


class Usage(NamedTuple):
    """What all processes of a claim use of one cell.

    Attributes:
        memory_bytes: of the GPU.
        launches: since each process started.
        host_memory_bytes: of the host, pinned for all cells together: the same in each.
        spilled_bytes: of the memory of all cells together, what managed memory serves, because
            the GPU had none left: the same in each.
    """

    memory_bytes: int
    launches: int
    host_memory_bytes: int = 0
    spilled_bytes: int = 0


NO_USAGE: Final = Usage(0, 0)


class Process(NamedTuple):
    """A process of a claim that runs the device library, and the values in its slot.

    Attributes:
        pid: as the reader's PID namespace shows it; 0 where it does not, or where the
            process has lost the lock that says so.
        memory_bytes: by cell.
        launches: by cell.
        host_memory_bytes: of the host, pinned for the GPUs.
        spilled_bytes: of its memory, what managed memory serves.
    """

    pid: int
    memory_bytes: tuple[int, ...]
    launches: tuple[int, ...]
    host_memory_bytes: int = 0
    spilled_bytes: int = 0


def make(path: Path) -> None:
    """Create the file; one that is large enough stays, because processes have mapped it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN, _MODE)
    try:
        os.fchmod(file, _MODE)
        if os.fstat(file).st_size < COUNTERS_SIZE:
            # A write to a hole would end a process of the claim while the tmpfs is full.
            os.posix_fallocate(file, 0, COUNTERS_SIZE)
        os.pwrite(file, COUNTERS_HEADER.pack(COUNTERS_MAGIC, VERSION, PROCESSES_MAX), 0)
    finally:
        os.close(file)


def hold(path: Path) -> int:
    """Keep the file open for writing, so that no container gets a lease of it.

    Returns:
        The descriptor to close.

    Raises:
        OSError: as when a container has a lease, which it loses within 45 s.
    """
    return os.open(path, os.O_WRONLY | _OPEN)


def read(path: Path) -> list[Usage]:
    """The sums over the living processes, by cell; zeros when the file is gone or broken.

    Raises:
        CostlyCountersError: reading it takes too long.
    """
    return usage(processes(path))


def usage(found: Sequence[Process]) -> list[Usage]:
    """The sums over processes, by cell."""
    if not found:
        return [NO_USAGE] * CELLS_MAX
    memory = [sum(cell) for cell in zip(*(one.memory_bytes for one in found), strict=True)]
    launches = [sum(cell) for cell in zip(*(one.launches for one in found), strict=True)]
    host = sum(one.host_memory_bytes for one in found)
    spilled = sum(one.spilled_bytes for one in found)
    return [Usage(*cell, host, spilled) for cell in zip(memory, launches, strict=True)]


def processes(path: Path) -> list[Process]:
    """The living processes of a claim; none when the file is gone or broken.

    Raises:
        CostlyCountersError: it took more than `BUDGET_NS` of the thread's CPU time.
    """
    try:
        file = os.open(path, os.O_RDONLY | _OPEN)
    except OSError:
        return []
    try:
        data = os.pread(file, COUNTERS_SIZE, 0)
        if len(data) != COUNTERS_SIZE:
            return []
        return [_process(data, slot, pid) for slot, pid in _owners(file, data)]
    finally:
        os.close(file)


def cut(path: Path) -> bool:
    """Cut a file back that a container has made too large; whether it had.

    What processes map of it is far smaller.
    """
    try:
        status = path.lstat()
        if max(status.st_size, status.st_blocks * _BLOCK_BYTES) <= FILE_BYTES_MAX:
            return False
        file = os.open(path, os.O_WRONLY | _OPEN)
        try:
            os.ftruncate(file, min(status.st_size, FILE_BYTES_MAX))
        finally:
            os.close(file)
    except OSError:
        return False
    return True


def _process(data: bytes, slot: int, pid: int) -> Process:
    _, _, host, spilled, *cells = COUNTERS_SLOT.unpack_from(data, _offset(slot))
    return Process(pid, tuple(cells[:CELLS_MAX]), tuple(cells[CELLS_MAX:]), host, spilled)


def _offset(slot: int) -> int:
    return COUNTERS_HEADER.size + slot * COUNTERS_SLOT.size


def _owners(file: int, data: bytes) -> Iterator[tuple[int, int]]:
    """Each slot that a process holds, with the pid of that process, 0 if unknown."""
    end = time.thread_time_ns() + BUDGET_NS
    words = memoryview(data).cast("I")
    in_use = words[_offset(0) // 4 : _offset(PROCESSES_MAX) // 4 : COUNTERS_SLOT.size // 4]
    for slot, used in enumerate(in_use.tolist()):
        if used:
            pid = _owner(file, slot)
            if pid is not None:
                yield slot, pid
            if time.thread_time_ns() > end:
                raise CostlyCountersError


def _owner(file: int, slot: int) -> int | None:
    """The pid of the process that holds a slot, 0 if unknown; None if no process does."""
    for byte in (_offset(slot), _offset(slot) + 1):
        query = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK:
            return max(0, int(pid))
    return None


class CountersReader:
    """Reads the counters of claims, and leaves those out for a minute that take too long.

    Args:
        paths: of the run folder.
        clock: seconds on a clock that never goes back.
    """

    def __init__(self, paths: Paths, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock
        self._skipped: dict[str, float] = {}  # claim -> until
        self._cut: dict[str, float] = {}  # claim -> until when that is not logged again

    def processes(self, claim: str) -> list[Process]:
        """The living processes of a claim; none while its file takes too long to read."""
        file = self._paths.counters(claim)
        if cut(file) and _begins(self._cut, claim, self._clock()):
            log.warning("counters cut back: a container had made their file larger", claim=claim)
        if self.is_skipped(claim):
            return []
        try:
            return processes(file)
        except CostlyCountersError:
            _begins(self._skipped, claim, self._clock())
            log.warning(
                "counters not read: a container makes that expensive, as by thousands of locks",
                claim=claim,
                seconds=PAUSE_SECONDS,
            )
            return []

    def is_skipped(self, claim: str) -> bool:
        """Whether a claim is left out now."""
        now = self._clock()
        return self._skipped.get(claim, now) > now

    def skipped(self) -> int:
        """How many claims are left out now."""
        now = self._clock()
        return sum(now < until for until in tuple(self._skipped.values()))


def _begins(pauses: dict[str, float], claim: str, now: float) -> bool:
    """Begin a pause of a claim; False if it has one. Pauses that are over are forgotten."""
    if pauses.get(claim, now) > now:
        return False
    for name in [name for name, until in pauses.items() if until <= now]:
        del pauses[name]
    pauses[claim] = now + PAUSE_SECONDS
    return True
