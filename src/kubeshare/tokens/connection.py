"""One process's connection, and how much it may say."""

import socket

from kubeshare.tokens.wire import Message


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
        earned = (now - self._at_ns) / 1e9 * self.per_second
        self._at_ns = now
        self._left = min(self._burst, self._left + earned) - 1
        return self._left >= 0


class Connection:
    """One process of a claim.

    Args:
        accepted: non-blocking.
        rate: of its messages.
    """

    __slots__ = ("_socket", "rate", "said_hello")

    def __init__(self, accepted: socket.socket, rate: Rate) -> None:
        self._socket = accepted
        self.rate = rate
        self.said_hello = False

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
