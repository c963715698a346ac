"""One process's connection, and the rate of its messages."""

import socket
import struct
from typing import Final

from kubeshare.tokens.wire.protocol import Message

_CREDENTIALS: Final = struct.Struct("iII")
"""pid, uid, gid."""


class Rate:
    """A token bucket: allows `per_second` events, and `burst` of them at once."""

    __slots__ = ("_at_ns", "_burst", "_left", "per_second")

    def __init__(self, per_second: int, burst: int, now: int) -> None:
        self.per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at_ns = now

    def allows(self, now: int) -> bool:
        """Count one event at `now` (ns); False if it exceeds the rate."""
        left = self._left + (now - self._at_ns) / 1e9 * self.per_second
        self._at_ns = now
        self._left = left = min(self._burst, left) - 1
        return left >= 0


class Connection:
    """One process of a claim.

    Args:
        accepted: the socket, non-blocking.
        rate: of the messages that it may send.

    Attributes:
        pid: of the process that connected, in the daemon's PID namespace; 0 if it is not
            visible there.
        protocol: the negotiated one; None before its HELLO.
        cells: bit n is set if its last WANT named cell n.
    """

    __slots__ = ("_socket", "cells", "pid", "protocol", "rate")

    def __init__(self, accepted: socket.socket, rate: Rate) -> None:
        self._socket = accepted
        self.rate = rate
        credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(credentials)[0]
        self.protocol: int | None = None
        self.cells = 0

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

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
