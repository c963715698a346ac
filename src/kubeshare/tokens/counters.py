"""The memory that a claim's processes say they use. For people only: it is not trusted.

Each process has a slot and holds a record lock on its first byte while it lives;
what a dead process left in its slot does not count.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

from kubeshare.tokens.wire import (
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


class Use(NamedTuple):
    """What all processes of a claim use of one cell."""

    memory: int
    launches: int


def make(path: Path) -> None:
    """Make the file; one that is large enough is left as it is, for processes map it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        os.fchmod(file, _MODE)
        if os.fstat(file).st_size < COUNTERS_SIZE:
            os.ftruncate(file, COUNTERS_SIZE)
        os.pwrite(file, COUNTERS_HEADER.pack(COUNTERS_MAGIC, VERSION, PROCESSES_MAX), 0)
    finally:
        os.close(file)


def read(path: Path) -> list[Use]:
    """The sums over the living processes, by cell; zeros when the file is gone or broken."""
    nothing = [Use(0, 0)] * CELLS_MAX
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return nothing
    try:
        data = os.pread(file, COUNTERS_SIZE, 0)
        if len(data) != COUNTERS_SIZE:
            return nothing
        slots = [slot for slot in range(PROCESSES_MAX) if _is_used(file, data, slot)]
    finally:
        os.close(file)
    values = [COUNTERS_SLOT.unpack_from(data, _offset(slot))[2:] for slot in slots]
    return [
        Use(sum(v[cell] for v in values), sum(v[CELLS_MAX + cell] for v in values))
        for cell in range(CELLS_MAX)
    ]


def _offset(slot: int) -> int:
    return COUNTERS_HEADER.size + slot * COUNTERS_SLOT.size


def _is_used(file: int, data: bytes, slot: int) -> bool:
    offset = _offset(slot)
    if not any(data[offset : offset + 4]):
        return False
    question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    answer = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, question))
    return bool(answer[0] != fcntl.F_UNLCK)
