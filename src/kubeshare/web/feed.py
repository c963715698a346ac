"""Passes changes to clients, each with a bounded queue."""

import asyncio
from collections import deque
from typing import Final

MAX_CLIENTS: Final = 32
"""Streams that are open at once; a browser has one for each of its tabs."""
QUEUE: Final = 64
"""Changes that wait for one client; of one that lags more, all are replaced by a refresh."""

REFRESH: Final = b"event: refresh\ndata: {}\n\n"
"""Asks a client to read everything again."""


class TooManyClientsError(Exception):
    """No further stream may be opened now."""


class Subscription:
    """The changes for one client."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: bytes) -> None:
        """Queue an event; if too many wait, they become one refresh."""
        if len(self._waiting) >= QUEUE:
            self._waiting.clear()
            event = REFRESH
        if not (event is REFRESH and REFRESH in self._waiting):
            self._waiting.append(event)
        self._news.set()

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self._waiting.clear()
        self._news.set()

    async def next(self, seconds: float) -> bytes | None:
        """The next event, ``b""`` if none comes within so many seconds; None at the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return b""
        if self._closed:
            return None
        event = self._waiting.popleft()
        if not self._waiting:
            self._news.clear()
        return event


class Feed:
    """Passes each change to all clients.

    Args:
        most: the clients that it may have at once.
    """

    def __init__(self, most: int = MAX_CLIENTS) -> None:
        self._most = most
        self._clients: set[Subscription] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._clients)

    def subscribe(self) -> Subscription:
        """Add a client.

        Raises:
            TooManyClientsError: there are ``most``, or the program ends.
        """
        if self._closed or len(self._clients) >= self._most:
            raise TooManyClientsError(
                f"{self._most} pages are open already: close one of them, then load this one again"
            )
        client = Subscription()
        self._clients.add(client)
        return client

    def unsubscribe(self, client: Subscription) -> None:
        """Remove a client."""
        self._clients.discard(client)

    def publish(self, event: bytes) -> None:
        """Queue an event for all clients."""
        for client in self._clients:
            client.put(event)

    def close(self) -> None:
        """End all streams, and accept no further one."""
        self._closed = True
        for client in self._clients:
            client.close()
