"""One process's connection, and how much it may say."""

import socket
import struct
from typing import Final

from kubeshare.tokens.wire.protocol import Message

_CREDENTIALS: Final = struct.Struct("iII")
"""pid, uid, gid."""


class Rate:
    """Counts events, and says when there are too many.

    Args:
        per_second: how many are fine for ever.
        burst: how many are fine at once.
        now: ns.
    """

    __slots__ = ("_at_ns", "_burst", "_left", "per_second")

    def __init__(self, per_second: int, burst: int, now: int) -> None:
        self.per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at_ns = now

    def allows(self, now: int) -> bool:
        """Count one event; False when it is one too many."""
        left = self._left + (now - self._at_ns) / 1e9 * self.per_second
        self._at_ns = now
        self._left = left = min(self._burst, left) - 1
        return left >= 0


class Connection:
    """One process of a claim.

    Args:
        accepted: non-blocking.
        rate: of its messages.

    Attributes:
        pid: of the process that connected, as the kernel translates it for the daemon;
            0 when it lives in a PID namespace that the daemon does not see.
        protocol: the one that was agreed on; None before its HELLO.
        cells: bit n is set when it uses cell n, by what it last wanted.
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
        """Its descriptor."""
        return self._socket.fileno()

    def receive(self, size: int) -> bytes | None:
        """One datagram of at most `size` bytes; b"" at the end, None when there is none yet."""
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def send(self, message: Message) -> bool:
        """Send without waiting; False when the process leaves too much unread.

        To one that is gone nothing is sent: its end is read from the socket.
        """
        try:
            self._socket.send(message.pack())
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """End it."""
        self._socket.close()
