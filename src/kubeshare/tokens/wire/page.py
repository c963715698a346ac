"""The page of one claim, as its only writer.

A page lives on tmpfs and is mapped by every process of the claim, read-only. It
outlives the daemon: a daemon that starts again writes on in the same file, never
truncates it (that would kill the readers), and counts the epochs on.

Order of a change: first the state, then the epoch, then the wake. A reader that
saw the old epoch and goes to sleep on it is refused or woken. Each word is one
aligned store. Who sleeps waits for an open gate, so nobody is woken by one that
begins to close; and what was asked while it was closing need not be asked again
when it is shut, so that is no new epoch.
"""

import ctypes
import mmap
import os
import uuid
from pathlib import Path
from typing import Final

from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.linux import futex_wake
from kubeshare.tokens.wire.protocol import (
    BOUNDS_OFFSET,
    EPOCH_OFFSET,
    GATE_STATE_OFFSET,
    GRANT_STATE_OFFSET,
    LEASE_END_OFFSET,
    OVERHEAD_OFFSET,
    PAGE_BOUNDS,
    PAGE_CELL,
    PAGE_HEADER,
    PAGE_MAGIC,
    VERSION,
    GateState,
    GrantState,
)

_CLOSED: Final = GateState.CLOSED
_CLOSING: Final = GateState.CLOSING
_MODE = 0o644
_EPOCHS = 2**32


class PageWriter:
    """Opens or makes the page of a grant, and closes all its gates.

    Args:
        path: of the page; its folder exists.
        grant: what the cells say.
    """

    def __init__(self, path: Path, grant: Grant) -> None:
        self._cells = len(grant.gpus)
        size = PAGE_HEADER.size + self._cells * PAGE_CELL.size
        _leave_to_others(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        try:
            os.fchmod(file, _MODE)
            if os.fstat(file).st_size < size:
                os.ftruncate(file, size)
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._words = memoryview(self._map).cast("I")
        self._longs = memoryview(self._map).cast("Q")
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._write(grant, size)

    def _write(self, grant: Grant, size: int) -> None:
        magic, _, _, _, known_state = PAGE_HEADER.unpack_from(self._map, 0)
        # Of a daemon before this one: what was active stays so until it is decided again.
        state = known_state if magic == PAGE_MAGIC else GrantState.PENDING
        epochs = [self.epoch(cell) for cell in range(self._cells)]
        overheads = [self.overhead(cell) for cell in range(self._cells)]
        for cell, gpu in enumerate(grant.gpus):
            PAGE_CELL.pack_into(
                self._map,
                _offset(cell),
                epochs[cell],
                GateState.CLOSED,
                0,
                gpu.memory_bytes,
                gpu.memory_total_bytes,
                gpu.request_micros,
                gpu.limit_micros,
                uuid.UUID(gpu.uuid.removeprefix("GPU-")).bytes,
                overheads[cell],
            )
            self.set_gate(cell, GateState.CLOSED)
        header = (PAGE_MAGIC, VERSION, size, self._cells, state)
        PAGE_HEADER.pack_into(self._map, 0, *header)

    def change(self, grant: Grant) -> None:
        """The cells' bounds are others; their GPUs, gates and leases stay."""
        for cell, gpu in enumerate(grant.gpus):
            at = _offset(cell) + BOUNDS_OFFSET
            bounds = (
                gpu.memory_bytes,
                gpu.memory_total_bytes,
                gpu.request_micros,
                gpu.limit_micros,
            )
            PAGE_BOUNDS.pack_into(self._map, at, *bounds)

    def epoch(self, cell: int) -> int:
        """The cell's present epoch."""
        return self._words[(_offset(cell) + EPOCH_OFFSET) // 4]

    def gate(self, cell: int) -> GateState:
        """The cell's present state."""
        return GateState(self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4])

    def set_gate(self, cell: int, state: GateState) -> None:
        """Change a gate, count the epoch, wake who sleeps on it."""
        self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4] = state
        word = _offset(cell) + EPOCH_OFFSET
        self._words[word // 4] = (self._words[word // 4] + 1) % _EPOCHS
        if state is not _CLOSING:
            futex_wake(self._address + word)

    def shut_gate(self, cell: int) -> None:
        """A gate that was closing is closed."""
        self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4] = _CLOSED

    def set_lease_end(self, cell: int, lease_end_ns: int) -> None:
        """Say until when the lease runs."""
        self._longs[(_offset(cell) + LEASE_END_OFFSET) // 8] = lease_end_ns

    def overhead(self, cell: int) -> int:
        """Bytes that the driver counts beyond what the library tracks."""
        return self._longs[(_offset(cell) + OVERHEAD_OFFSET) // 8]

    def set_overhead(self, cell: int, overhead_bytes: int) -> None:
        """Say how many bytes the driver counts beyond what the library tracks."""
        self._longs[(_offset(cell) + OVERHEAD_OFFSET) // 8] = overhead_bytes

    def set_grant_state(self, state: GrantState) -> None:
        """Say whether anything may start; waiters look again when it is bad news."""
        self._words[GRANT_STATE_OFFSET // 4] = state
        if state in (GrantState.REFUSED, GrantState.REVOKED):
            for cell in range(self._cells):
                self.set_gate(cell, GateState.CLOSED)


def _leave_to_others(path: Path) -> None:
    """Take a page of another layout out of the folder: who has mapped it keeps it as it is."""
    try:
        known = path.read_bytes()[: PAGE_HEADER.size]
    except FileNotFoundError:
        return
    if len(known) == PAGE_HEADER.size:
        magic, version, *_ = PAGE_HEADER.unpack(known)
        if magic == PAGE_MAGIC and version != VERSION:
            path.unlink()


def _offset(cell: int) -> int:
    return PAGE_HEADER.size + cell * PAGE_CELL.size
