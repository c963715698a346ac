"""Writes the page of one claim.

A page is a file on tmpfs that every process of the claim maps read-only. It survives the
daemon: one that restarts writes to the same file, never truncates it (that would kill the
readers), and continues the epochs.

Order of a change: first the state, then the epoch, then the wake. A reader that saw the
old epoch and goes to sleep on it is refused or woken. Each word is one aligned store.
Sleepers wait for an open gate, so a gate that begins to close wakes none of them. WANTs
that were sent while it was closing stay valid when it is closed, so that step starts no
new epoch.
"""

import ctypes
import mmap
import os
import struct
import uuid
from pathlib import Path
from typing import Final, NamedTuple

from kubeshare.tokens.files.grants import Grant, GrantedShare
from kubeshare.tokens.linux import futex_wake
from kubeshare.tokens.wire.protocol import (
    BOUNDS_OFFSET,
    EPOCH_OFFSET,
    EPOCHS,
    GATE_STATE_OFFSET,
    GRANT_STATE_OFFSET,
    LEASE_END_OFFSET,
    OVERHEAD_OFFSET,
    OVERSUBSCRIBED_OFFSET,
    PAGE_BOUNDS,
    PAGE_CELL,
    PAGE_EXTENSION,
    PAGE_HEADER,
    PAGE_MAGIC,
    RESERVED_OFFSET,
    USED_OFFSET,
    VERSION,
    GateState,
    GrantState,
)

_CLOSED: Final = GateState.CLOSED
_CLOSING: Final = GateState.CLOSING
_GATES: Final = tuple(GateState)
"""By number; only this daemon writes pages, so there is no other."""
_HEADER_BYTES: Final = PAGE_HEADER.size
_CELL_BYTES: Final = PAGE_CELL.size
_EXTENSION_BYTES: Final = PAGE_EXTENSION.size
_MODE = 0o644
# Between two daemons a container may get a lease of the page, for which an open would wait 45 s.
_NO_WAIT: Final = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class PageWriter:
    """Opens or creates the page of a grant at `path`, and closes all its gates."""

    def __init__(self, path: Path, grant: Grant) -> None:
        self._cells = len(grant.gpus)
        self._extensions = _offset(self._cells)
        size = self._extensions + self._cells * _EXTENSION_BYTES
        _unlink_other_layout(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | _NO_WAIT, _MODE)
        try:
            os.fchmod(file, _MODE)
            if os.fstat(file).st_size < size:
                os.posix_fallocate(file, 0, size)  # a write to a hole ends us on a full tmpfs
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._words = memoryview(self._map).cast("I")
        self._longs = memoryview(self._map).cast("Q")
        self._epochs = _epochs(self._map, self._cells)
        self._write(grant)

    def _write(self, grant: Grant) -> None:
        magic, _, _, cells, known_state, _ = PAGE_HEADER.unpack_from(self._map, 0)
        # Written by an earlier daemon: what was active stays so, with the same amounts, until it
        # is decided again: others may have been counted only with these.
        state = known_state if magic == PAGE_MAGIC else GrantState.PENDING
        runs = state == GrantState.ACTIVE
        uuids = [_uuid_bytes(gpu) for gpu in grant.gpus]
        if runs and (cells != self._cells or uuids != self._known_uuids()):
            runs, state = False, GrantState.PENDING  # what was active had other GPUs
            self.set_grant_state(state)
        for cell, gpu in enumerate(grant.gpus):
            epoch, _, _, *known, _, overhead = PAGE_CELL.unpack_from(self._map, _offset(cell))
            bounds = known if runs else _bounds(gpu)
            fields = PAGE_CELL.pack(epoch, GateState.CLOSED, 0, *bounds, uuids[cell], overhead)
            self._put(_offset(cell), fields)
            self._write_extension(cell, gpu, runs=runs)
            self.set_gate(cell, GateState.CLOSED)
        at = self._extensions  # behind the cells
        self._put(0, PAGE_HEADER.pack(PAGE_MAGIC, VERSION, at, self._cells, state, at))

    def _known_uuids(self) -> list[bytes]:
        cells = (PAGE_CELL.unpack_from(self._map, _offset(cell)) for cell in range(self._cells))
        return [uuid_bytes for *_, uuid_bytes, _ in cells]

    def _put(self, at: int, data: bytes) -> None:
        """Write whole words, each by one store, the first one last: a reader may look any time."""
        words = memoryview(data).cast("Q")
        for index in reversed(range(len(words))):
            self._longs[at // 8 + index] = words[index]

    def change(self, grant: Grant) -> None:
        """Change the amounts of the cells; their GPUs, gates and leases stay."""
        for cell, gpu in enumerate(grant.gpus):
            at = _offset(cell) + BOUNDS_OFFSET
            self._put(at, PAGE_BOUNDS.pack(*_bounds(gpu)))
            self._change_extension(cell, gpu)

    def epoch(self, cell: int) -> int:
        """The cell's present epoch."""
        return self._words[(_offset(cell) + EPOCH_OFFSET) // 4]

    def gate(self, cell: int) -> GateState:
        """The cell's present state."""
        return _GATES[self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4]]

    def set_gate(self, cell: int, state: GateState) -> None:
        """Change a gate, start a new epoch, and wake its waiters."""
        self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4] = state
        word = _offset(cell) + EPOCH_OFFSET
        self._words[word // 4] = (self._words[word // 4] + 1) % EPOCHS
        if state is not _CLOSING:
            futex_wake(self._epochs[cell])

    def shut_gate(self, cell: int) -> None:
        """Close a gate that was closing."""
        self._words[(_offset(cell) + GATE_STATE_OFFSET) // 4] = _CLOSED

    def set_lease_end(self, cell: int, lease_end_ns: int) -> None:
        """Publish the end of the lease."""
        self._longs[(_offset(cell) + LEASE_END_OFFSET) // 8] = lease_end_ns

    def overhead(self, cell: int) -> int:
        """Bytes that the driver counts beyond what the library tracks."""
        return self._longs[(_offset(cell) + OVERHEAD_OFFSET) // 8]

    def set_overhead(self, cell: int, overhead_bytes: int) -> None:
        """Publish how many bytes the driver counts beyond what the library tracks."""
        self._longs[(_offset(cell) + OVERHEAD_OFFSET) // 8] = overhead_bytes

    def set_use(self, cell: int, used_micros: int, at_ns: int) -> None:
        """Publish the share of the GPU's time that was used, up to `at_ns`."""
        at = self._extension(cell)
        self._longs[at // 8] = at_ns
        self._words[(at + USED_OFFSET) // 4] = used_micros

    def _write_extension(self, cell: int, share: GrantedShare, *, runs: bool) -> None:
        """Clear what a later daemon may have written there too: nobody would keep it right."""
        at = self._extension(cell)
        at_ns, used, *known = PAGE_EXTENSION.unpack_from(self._map, at)
        amounts = known if runs else (share.is_oversubscribed, share.memory_bytes)
        self._put(at, PAGE_EXTENSION.pack(at_ns, used, *amounts))

    def _change_extension(self, cell: int, share: GrantedShare) -> None:
        """Publish what is reserved, and whether what has no room becomes managed memory."""
        at = self._extension(cell)
        self._words[(at + OVERSUBSCRIBED_OFFSET) // 4] = share.is_oversubscribed
        self._longs[(at + RESERVED_OFFSET) // 8] = share.memory_bytes

    def _extension(self, cell: int) -> int:
        return self._extensions + cell * _EXTENSION_BYTES

    def set_grant_state(self, state: GrantState) -> None:
        """Publish whether anything may start; wakes the waiters if nothing may."""
        self._words[GRANT_STATE_OFFSET // 4] = state
        if state in (GrantState.REFUSED, GrantState.REVOKED):
            for cell in range(self._cells):
                self.set_gate(cell, GateState.CLOSED)


def revoke(path: Path) -> None:
    """Publish on a page that has no writer, if there is one, that nothing may start any more."""
    try:
        file = os.open(path, os.O_RDWR | _NO_WAIT)
    except OSError:
        return
    try:
        page = mmap.mmap(file, 0)
    except ValueError:  # it is empty
        return
    finally:
        os.close(file)
    if len(page) < _HEADER_BYTES:
        return
    magic, version, _, cells, *_ = PAGE_HEADER.unpack_from(page)
    if (magic, version) != (PAGE_MAGIC, VERSION) or len(page) < _offset(cells):
        return
    words = memoryview(page).cast("I")
    words[GRANT_STATE_OFFSET // 4] = GrantState.REVOKED
    for cell, epoch in enumerate(_epochs(page, cells)):
        words[(_offset(cell) + GATE_STATE_OFFSET) // 4] = _CLOSED
        word = _offset(cell) + EPOCH_OFFSET
        words[word // 4] = (words[word // 4] + 1) % EPOCHS
        futex_wake(epoch)


class PageShare(NamedTuple):
    """What a page gives of one GPU."""

    uuid: str
    request_micros: int
    memory_limit_bytes: int
    memory_reserved_bytes: int
    """0: written by a daemon that did not say it."""


class PageContent(NamedTuple):
    """What a page says: whether anything may start, and the shares by cell."""

    state: GrantState
    shares: tuple[PageShare, ...]


def read_page(path: Path) -> PageContent | None:
    """Read a page of this layout; None if nothing has been written to it.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read.
        ValueError: it is broken, or of another layout.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
        data = file.read()
    if not any(data[:_HEADER_BYTES]):
        return None
    try:
        magic, version, size, cells, state, extensions = PAGE_HEADER.unpack_from(data)
        if (magic, version, size) != (PAGE_MAGIC, VERSION, _offset(cells)):
            raise ValueError(f"{path}: no page of layout {VERSION}")
        shares = [_share(data, cell, extensions) for cell in range(cells)]
    except struct.error as error:
        raise ValueError(f"{path}: {error}") from None
    return PageContent(GrantState(state), tuple(shares))


def _share(data: bytes, cell: int, extensions: int) -> PageShare:
    _, _, _, memory_limit, _, request, _, uuid_bytes, _ = PAGE_CELL.unpack_from(data, _offset(cell))
    reserved = 0
    if extensions:
        *_, reserved = PAGE_EXTENSION.unpack_from(data, extensions + cell * _EXTENSION_BYTES)
    return PageShare(f"GPU-{uuid.UUID(bytes=uuid_bytes)}", request, memory_limit, reserved)


def _bounds(share: GrantedShare) -> tuple[int, int, int, int]:
    """The values of `PAGE_BOUNDS`."""
    return (
        share.most_memory_bytes,
        share.gpu_memory_bytes,
        share.request_micros,
        share.limit_micros,
    )


def _uuid_bytes(share: GrantedShare) -> bytes:
    return uuid.UUID(share.uuid.removeprefix("GPU-")).bytes


def _unlink_other_layout(path: Path) -> None:
    """Remove a page of another layout: the processes that have mapped it keep it unchanged."""
    try:
        file = os.open(path, os.O_RDONLY | _NO_WAIT)
    except FileNotFoundError:
        return
    try:
        known = os.read(file, _HEADER_BYTES)
    finally:
        os.close(file)
    if len(known) == _HEADER_BYTES:
        magic, version, *_ = PAGE_HEADER.unpack(known)
        if magic == PAGE_MAGIC and version != VERSION:
            path.unlink()


def _epochs(page: mmap.mmap, cells: int) -> list[ctypes.c_void_p]:
    """The addresses of the cells' epochs."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(page)) + EPOCH_OFFSET
    return [ctypes.c_void_p(address + _offset(cell)) for cell in range(cells)]


def _offset(cell: int) -> int:
    return _HEADER_BYTES + cell * _CELL_BYTES
