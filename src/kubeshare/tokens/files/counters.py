"""The memory that a claim's processes report, which is not trusted.

Each process has a slot and holds record locks on its first two bytes while it lives; the
values that a dead process left in its slot do not count. The kernel says which process
holds the lock of the first byte, not the container. A process that closes the file loses
that lock, though not the one of the second byte, which belongs to the open file.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

from kubeshare.tokens.wire.protocol import (
    CELLS_MAX,
    COUNTERS_HEADER,
    COUNTERS_MAGIC,
    COUNTERS_SIZE,
    COUNTERS_SLOT,
    PROCESSES_MAX,
    VERSION,
)

_MODE = 0o666
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")


class Usage(NamedTuple):
    """What all processes of a claim use of one cell."""

    memory_bytes: int
    launches: int


class Process(NamedTuple):
    """A process of a claim that runs the device library, and the values in its slot.

    Attributes:
        pid: as the reader's PID namespace shows it; 0 where it does not, or where the
            process has lost the lock that says so.
        memory_bytes: by cell.
        launches: by cell.
    """

    pid: int
    memory_bytes: tuple[int, ...]
    launches: tuple[int, ...]


def make(path: Path) -> None:
    """Create the file; one that is large enough stays, because processes have mapped it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        os.fchmod(file, _MODE)
        if os.fstat(file).st_size < COUNTERS_SIZE:
            # A write to a hole would end a process of the claim while the tmpfs is full.
            os.posix_fallocate(file, 0, COUNTERS_SIZE)
        os.pwrite(file, COUNTERS_HEADER.pack(COUNTERS_MAGIC, VERSION, PROCESSES_MAX), 0)
    finally:
        os.close(file)


def read(path: Path) -> list[Usage]:
    """The sums over the living processes, by cell; zeros when the file is gone or broken."""
    found = processes(path)
    return [
        Usage(
            sum(one.memory_bytes[cell] for one in found), sum(one.launches[cell] for one in found)
        )
        for cell in range(CELLS_MAX)
    ]


def processes(path: Path) -> list[Process]:
    """The living processes of a claim; none when the file is gone or broken."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        data = os.pread(file, COUNTERS_SIZE, 0)
        if len(data) != COUNTERS_SIZE:
            return []
        owners = {slot: _owner(file, data, slot) for slot in range(PROCESSES_MAX)}
    finally:
        os.close(file)
    found = []
    for slot, pid in owners.items():
        if pid is not None:
            values = COUNTERS_SLOT.unpack_from(data, _offset(slot))[2:]
            found.append(Process(pid, values[:CELLS_MAX], values[CELLS_MAX:]))
    return found


def _offset(slot: int) -> int:
    return COUNTERS_HEADER.size + slot * COUNTERS_SLOT.size


def _owner(file: int, data: bytes, slot: int) -> int | None:
    """The pid of the process that holds a slot, 0 if unknown; None if no process does."""
    offset = _offset(slot)
    if not any(data[offset : offset + 4]):
        return None
    for byte in (offset, offset + 1):
        query = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK:
            return max(0, int(pid))
    return None
