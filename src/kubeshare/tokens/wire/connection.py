"""A claim's socket, and one process's connection to it."""

import os
import socket
import struct
from pathlib import Path
from typing import Final

from kubeshare.tokens.wire.protocol import BUSY_INTERVAL_NS, EPOCHS, PROCESSES_MAX, Message

_CREDENTIALS: Final = struct.Struct("iII")
"""pid, uid, gid."""


def listen(folder: Path) -> socket.socket:
    """Make the socket in a claim's folder, non-blocking, in place of one left by a dead daemon.

    Raises:
        OSError: it cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    (folder / "socket").unlink(missing_ok=True)
    # A socket's address has 108 bytes and the folder's path may be longer: use a descriptor.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/socket")
    finally:
        os.close(descriptor)
    (folder / "socket").chmod(0o666)
    listener.listen(PROCESSES_MAX)
    return listener


class Connection:
    """One process of a claim.

    Args:
        accepted: the socket, non-blocking.

    Attributes:
        pid: of the process that connected, in the daemon's PID namespace; 0 if it is not
            visible there.
        protocol: the negotiated one; None before its HELLO.
        cells: bit n is set if its last WANT named cell n.
    """

    __slots__ = ("_busy_ns", "_socket", "_wanted", "cells", "pid", "protocol")

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(credentials)[0]
        self.protocol: int | None = None
        self.cells = 0
        self._wanted: dict[int, int] = {}
        self._busy_ns: dict[int, int] = {}

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def wants_first(self, cell: int, epoch: int, present: int) -> bool:
        """Note a WANT of `epoch`; whether it is the first for this cell and epoch.

        Only those of the `present` epoch and the one before are: another process's WANT may
        have opened the gate since it was sent.
        """
        age = (present - epoch) % EPOCHS
        noted = self._wanted.get(cell)
        if age > 1 or (noted is not None and age >= (present - noted) % EPOCHS):
            return False
        self._wanted[cell] = epoch
        return True

    def is_busy_due(self, cell: int, now: int) -> bool:
        """Note a BUSY; whether the last one for this cell is about as old as it should be."""
        last = self._busy_ns.get(cell)
        if last is not None and now - last < BUSY_INTERVAL_NS // 2:
            return False
        self._busy_ns[cell] = now
        return True

    def receive(self, size: int) -> bytes | None:
        """Receive a datagram of at most `size` bytes; b"" at the end, None if there is none yet."""
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def send(self, message: Message) -> bool:
        """Send without blocking; False if the process leaves too many messages unread.

        A message to a process that has ended is lost: `receive` reports the end.
        """
        try:
            self._socket.send(message.pack())
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
