"""Closes connections that leave the head of a request unfinished."""

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 10.0
"""Seconds in which the head of a request has to come."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn has it, which itself waits for a head for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection was opened."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed."""
        self._cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """A request has been answered, and another one may follow."""
        self._wait_for_head()
        super().on_response_complete()

    def _wait_for_head(self) -> None:
        self._cancel()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._expire)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.abort()
