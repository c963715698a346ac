"""Serves probes, ``/metrics`` and further pages from a program's event loop.

An answer of the loop is itself the heartbeat behind ``/livez``. The server takes GET and HEAD,
reads no body, closes the connection after each answer, and bounds what a client can send or keep
open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST

HEAD_LIMIT = 8192
HEAD_SECONDS = 5.0
CONNECTIONS = 64

Check: TypeAlias = Callable[[], Iterable[str]]
"""Returns a sentence for each problem; nothing if there is none."""

Page: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns a JSON document, or raises ``UnavailableError``."""

Metrics: TypeAlias = Callable[[], bytes | Awaitable[bytes]]
"""Returns the Prometheus exposition, or begins to make it."""

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class UnavailableError(Exception):
    """A page cannot be made now; the message says why."""


class HealthServer:
    """Serves probes and metrics.

    Args:
        port: TCP port on all addresses; 0 for a free one on the loopback.
        ready: the reasons why the program cannot do its work yet.
        metrics: returns the Prometheus exposition.
        live: the problems that only a restart would solve.

    Attributes:
        pages: path → page, such as ``/version``.
        port: the port that the server listens on, once ``run`` has begun.
        listening: set once the server listens.
    """

    def __init__(
        self,
        port: int,
        *,
        ready: Check,
        metrics: Metrics,
        live: Check = tuple,
    ) -> None:
        self.port = port
        self._checks = {"/livez": live, "/readyz": ready}
        self._metrics = metrics
        self.pages: dict[str, Page] = {}
        self._open = 0
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: the port is in use.
        """
        host = None if self.port else "127.0.0.1"
        server = await asyncio.start_server(self._serve, host, self.port, limit=HEAD_LIMIT)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            self.listening.set()
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                async with asyncio.timeout(HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            # A client without a valid request in time gets no answer. One that does not read
            # must not keep what was written for it.
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode(errors="replace")
        if method not in {b"GET", b"HEAD"}:
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
        if path == "/metrics":
            found = self._metrics()
            body = found if isinstance(found, bytes) else await found
            return _response(HTTPStatus.OK, body, CONTENT_TYPE_LATEST)
        if path in self.pages:
            return await self._page(path)
        if path not in self._checks:
            known = ", ".join((*self._checks, "/metrics", *self.pages))
            return _response(HTTPStatus.NOT_FOUND, f"try {known}\n".encode())
        problems = list(self._checks[path]())
        if problems:
            text = "\n".join(problems) + "\n"
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        return _response(HTTPStatus.OK, b"ok\n")

    async def _page(self, path: str) -> bytes:
        try:
            return _response(HTTPStatus.OK, await self.pages[path](), _JSON)
        except UnavailableError as error:
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())


def _response(status: HTTPStatus, body: bytes, content_type: str = _TEXT) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
