"""Layouts, constants and messages of `native/include/kubeshare_wire.h`.

`tests/tokens/wire/test_protocol_layout.py` compares every number with the C header.
"""

import enum
import struct
from typing import Final

import msgspec

VERSION: Final = 1
PROTOCOL_OLDEST: Final = 1
PROTOCOL_NEWEST: Final = 2
CELLS_MAX: Final = 16
PROCESSES_MAX: Final = 256
EPOCHS: Final = 2**32
"""Epochs wrap around at this."""

BUSY_INTERVAL_NS: Final = 50_000_000
"""While it drains a library sends BUSY so often."""

CLAIM_FOLDER_ENV: Final = "KUBESHARE_CLAIM"
COUNTERS_FILE_ENV: Final = "KUBESHARE_COUNTERS"

PAGE_MAGIC: Final = 0x3145474150534B00
COUNTERS_MAGIC: Final = 0x31544E434F534B00

PAGE_HEADER: Final = struct.Struct("=QIIIII36x")
"""magic, version, size_bytes, cells, grant_state, extensions."""
GRANT_STATE_OFFSET: Final = 20

PAGE_CELL: Final = struct.Struct("=IIQQQII16sQ")
"""epoch, gate_state, lease_end_ns, memory_limit_bytes, memory_total_bytes, request, limit, uuid,
overhead_bytes."""
EPOCH_OFFSET: Final = 0
GATE_STATE_OFFSET: Final = 4
LEASE_END_OFFSET: Final = 8
BOUNDS_OFFSET: Final = 16
OVERHEAD_OFFSET: Final = 56
PAGE_BOUNDS: Final = struct.Struct("=QQII")
"""From `BOUNDS_OFFSET` on: memory_limit_bytes, memory_total_bytes, request, limit."""

PAGE_EXTENSION: Final = struct.Struct("=QIIQ40x")
"""used_at_ns, used_micros, oversubscribed, memory_reserved_bytes."""
USED_OFFSET: Final = 8
OVERSUBSCRIBED_OFFSET: Final = 12
RESERVED_OFFSET: Final = 16
USE_TAU_NS: Final = 2_000_000_000
"""Time constant of the average in `used_micros`."""

MESSAGE: Final = struct.Struct("=HHIIIQQ")

COUNTERS_HEADER: Final = struct.Struct("=QII48x")
"""magic, version, slots."""
COUNTERS_SLOT: Final = struct.Struct(f"=IIQQ40x{CELLS_MAX}Q{CELLS_MAX}Q")
"""used, pid, host_bytes, spilled_bytes, then memory_bytes and launches of each cell."""
COUNTERS_BUDGET: Final = struct.Struct(f"={CELLS_MAX}Q")
"""units charged (low half) and set aside (high half) of each cell, of one process."""
COUNTERS_SIZE: Final = COUNTERS_HEADER.size + PROCESSES_MAX * (
    COUNTERS_SLOT.size + COUNTERS_BUDGET.size
)


class GrantState(enum.IntEnum):
    """Whether anything may start, for a whole page."""

    PENDING = 0
    ACTIVE = 1
    REFUSED = 2
    REVOKED = 3


class GateState(enum.IntEnum):
    """Whether a launch may pass, for one cell."""

    CLOSED = 0
    OPEN = 1
    CLOSING = 2


class MessageType(enum.IntEnum):
    """The type of a message: below 16 to the daemon, from 16 on to the library."""

    HELLO = 1
    WANT = 2
    DRAINED = 3
    IDLE = 4
    BUSY = 5
    WELCOME = 16
    CLOSING = 17
    WATCH = 18
    REFUSED = 19


_TYPES: Final = {int(kind): kind for kind in MessageType}


class MessageError(ValueError):
    """A datagram is not a message of this protocol."""


def agreed_protocol(oldest: int, newest: int) -> int | None:
    """The highest protocol that both sides support; None if there is none.

    `oldest` and `newest` are the other side's; a `newest` of 0 stands for `oldest`.
    """
    highest = min(max(oldest, newest), PROTOCOL_NEWEST)
    return highest if highest >= max(oldest, PROTOCOL_OLDEST) else None


class Message(msgspec.Struct, frozen=True):
    """One message; the fields are those of `struct ks_message`."""

    type: MessageType
    cell: int = 0
    epoch: int = 0
    pid: int = 0
    time_ns: int = 0
    value: int = 0
    version: int = VERSION

    def pack(self) -> bytes:
        """The message as 32 bytes."""
        return MESSAGE.pack(
            self.version, self.type, self.cell, self.epoch, self.pid, self.time_ns, self.value
        )

    @classmethod
    def unpack(cls, data: bytes) -> "Message":
        """Read one datagram.

        Raises:
            MessageError: a wrong length, or a type that does not exist.
        """
        if len(data) != MESSAGE.size:
            raise MessageError(f"{len(data)} bytes, a message has {MESSAGE.size}")
        version, type_, cell, epoch, pid, time_ns, value = MESSAGE.unpack(data)
        known = _TYPES.get(type_)
        if known is None:
            raise MessageError(f"type {type_} does not exist")
        return cls(known, cell, epoch, pid, time_ns, value, version)
