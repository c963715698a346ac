"""The daemon's counts of a claim, which survive the daemon.

The file is mapped, so that a written count survives however the daemon ends. No
container sees it.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from msgspec.structs import astuple, replace

from kubeshare.core.token import Tally

_MAGIC: Final = 0x31594C4C4154534B
_HEADER: Final = struct.Struct("=QQ")
"""magic, cells."""
_FIELDS: Final = len(Tally.__struct_fields__)
_ROW: Final = struct.Struct(f"={_FIELDS}Q{(16 - _FIELDS) * 8}x")
"""The counts of one cell, in the order of `Tally`; the rest of its 128 bytes is zero."""
_HEADER_BYTES: Final = _HEADER.size
_ROW_BYTES: Final = _ROW.size


class Tallies:
    """Opens or creates the file at `path` with a row for each of a claim's `cells`."""

    def __init__(self, path: Path, cells: int) -> None:
        size = _offset(cells)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(file).st_size != size:
                os.ftruncate(file, 0)
                os.posix_fallocate(file, 0, size)  # a write to a hole ends us on a full tmpfs
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._cells = cells
        self._is_new = _HEADER.unpack_from(self._map) != (_MAGIC, cells)
        if self._is_new:
            self._map[:] = _HEADER.pack(_MAGIC, cells) + bytes(cells * _ROW_BYTES)

    def read(self, cell: int) -> Tally:
        """The counts of a cell."""
        return Tally(*_ROW.unpack_from(self._map, _offset(cell)))

    def note_gap(self) -> None:
        """Count that nobody counted for a time, unless there were no counts before."""
        if not self._is_new:
            for cell in range(self._cells):
                tally = self.read(cell)
                self.write(cell, replace(tally, gaps=tally.gaps + 1))

    def write(self, cell: int, tally: Tally) -> None:
        """Save the counts of a cell."""
        _ROW.pack_into(self._map, _offset(cell), *astuple(tally))


def read(path: Path) -> tuple[Tally, ...]:
    """The counts of each cell, as the daemon last saved them; empty if there is no such file."""
    try:
        data = path.read_bytes()
    except OSError:
        return ()
    if len(data) < _HEADER_BYTES:
        return ()
    magic, cells = _HEADER.unpack_from(data)
    if magic != _MAGIC or len(data) != _offset(cells):
        return ()
    return tuple(Tally(*_ROW.unpack_from(data, _offset(cell))) for cell in range(cells))


def _offset(cell: int) -> int:
    return _HEADER_BYTES + cell * _ROW_BYTES
