"""A transport for httpx2 that keeps HTTP/1.1 connections to one server.

A control loop consists of small requests, and a general HTTP library needs eight times the CPU
of this module for each of them, TLS included (decision record 022 has the measurement). The
pool writes a request, reads the response and keeps the connection: no proxies, no redirects, no
HTTP/2. Where a proxy is configured, httpx2's own transport is used.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from kubeshare.kube.client.errors import ResponseTooLargeError
from kubeshare.kube.client.http1 import (
    HEAD_LIMIT,
    Headers,
    parse_chunk_size,
    parse_content_length,
    parse_head,
    request_head,
)

MAX_IDLE: Final = 32
"""Idle connections that are kept; more may be in use."""
CONNECT_SECONDS: Final = 10.0
_INTERIM_LIMIT: Final = 8
"""Interim (1xx) responses before the final one."""
_TRAILER_LIMIT: Final = 64
"""Lines after the last chunk."""
_NO_BODY: Final = frozenset({204, 304})


class _Connection:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def alive(self) -> bool:
        """Whether the server has not closed it, as far as is known."""
        return not (self.reader.at_eof() or self.writer.transport.is_closing())

    def close(self) -> None:
        """Close it at once."""
        self.writer.transport.abort()

    async def read_head(self) -> tuple[int, Headers]:
        """The status and headers of the next final response."""
        for _ in range(_INTERIM_LIMIT):
            status, headers = parse_head(await self.reader.readuntil(b"\r\n\r\n"))
            if status >= 200:
                return status, headers
        raise ValueError(f"more than {_INTERIM_LIMIT} interim responses")


class ConnectionPool(httpx2.AsyncBaseTransport):
    """Sends requests to one server over connections that are kept.

    Args:
        context: checks the server's certificate and holds the client's; None for plain HTTP.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of httpx2; the body of the response is read on demand.

        Raises:
            httpx2.ConnectError: no connection, or the wrong certificate.
            httpx2.ReadError: the connection broke after the request was begun.
        """
        head = request_head(request.method, request.url.raw_path, request.headers.raw)
        sent = head + await request.aread()
        status, headers, stream = await self.exchange(request.url, request.method, sent)
        return httpx2.Response(status, headers=headers, stream=stream, request=request)

    async def exchange(
        self, url: httpx2.URL, method: str, request: bytes, *, limit: int = sys.maxsize
    ) -> tuple[int, Headers, "Body"]:
        """Send a request and return the status, headers and body of the response.

        Args:
            url: names the server.
            method: of the request.
            request: its head and body.
            limit: the most bytes of the body that are read at once.

        Raises:
            ResponseTooLargeError: the response gives a length above the limit.
            httpx2.ConnectError: no connection, or the wrong certificate.
            httpx2.ReadError: the connection broke after the request was begun.
        """
        connection = await self._connection(url)
        try:
            connection.writer.write(request)
            await connection.writer.drain()
            status, headers = await connection.read_head()
            body = Body(self, connection, method, status, headers)
            if body.length is not None:
                check_length(body.length, limit)
                await body.load()
        except _BROKEN as error:
            connection.close()
            raise httpx2.ReadError(_reason(error)) from error
        except BaseException:
            connection.close()
            raise
        return status, headers, body

    async def aclose(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self, url: httpx2.URL) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                return connection
            connection.close()
        port = url.port or (443 if self._context else 80)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                streams = await asyncio.open_connection(
                    url.host, port, ssl=self._context, limit=HEAD_LIMIT
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no answer in {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise httpx2.ConnectError(_reason(error)) from error
        return _Connection(*streams)

    def release(self, connection: _Connection) -> None:
        """Take back a connection whose response has been read to its end."""
        if len(self._idle) < MAX_IDLE and connection.alive:
            self._idle.append(connection)
        else:
            connection.close()


class Body(httpx2.AsyncByteStream):
    """The body of a response.

    Attributes:
        length: in bytes if the response gives it; None for a chunked body, and for one that
            ends with the connection.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        connection: _Connection,
        method: str,
        status: int,
        headers: Headers,
    ) -> None:
        values = {name.lower(): value for name, value in headers}
        self._pool = pool
        self._connection: _Connection | None = connection
        self._chunked = b"chunked" in values.get(b"transfer-encoding", b"").lower()
        self._loaded = b""
        self.length: int | None = None
        if method == "HEAD" or status in _NO_BODY:
            self.length, self._chunked = 0, False
        elif not self._chunked and b"content-length" in values:
            self.length = parse_content_length(values[b"content-length"])
        # A body that ends with the connection ends the connection, too.
        ends_with_connection = self.length is None and not self._chunked
        closes = values.get(b"connection", b"").lower() == b"close"
        self._closes = closes or ends_with_connection

    async def load(self) -> None:
        """Read a body of known length, and release the connection."""
        assert self._connection is not None
        assert self.length is not None
        self._loaded = await self._connection.reader.readexactly(self.length)
        self._finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._next():
            yield part

    async def read(self, limit: int = sys.maxsize) -> bytes:
        """The rest of the body.

        Args:
            limit: the most bytes that are read.

        Raises:
            ResponseTooLargeError: it is longer than the limit.
            httpx2.ReadError: the connection broke.
        """
        parts, length = [], 0
        while part := await self._next():
            length += len(part)
            check_length(length, limit)
            parts.append(part)
        return b"".join(parts)

    async def _next(self) -> bytes:
        """The next part; empty at the end."""
        if self._connection is None:
            loaded, self._loaded = self._loaded, b""
            return loaded
        reader = self._connection.reader
        try:
            part = await (_read_chunk(reader) if self._chunked else reader.read(HEAD_LIMIT))
        except _BROKEN as error:
            raise httpx2.ReadError(_reason(error)) from error
        if not part:
            self._finish()
        return part

    async def aclose(self) -> None:
        """Close the connection if the body has not been read to its end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        if self._closes:
            connection.close()
        else:
            self._pool.release(connection)


def check_length(length: int, limit: int) -> None:
    """Check the length of a body in bytes.

    Raises:
        ResponseTooLargeError: it is longer than the limit.
    """
    if length > limit:
        raise ResponseTooLargeError(f"the API server's answer has more than {limit} bytes")


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    """The next chunk of a body; empty after the last one and its trailers."""
    size = parse_chunk_size(await reader.readuntil(b"\r\n"))
    if size:
        chunk = await reader.readexactly(size + 2)
        if not chunk.endswith(b"\r\n"):
            raise ValueError(f"a chunk of more than its {size} bytes")
        return chunk[:-2]
    for _ in range(_TRAILER_LIMIT):
        if await reader.readuntil(b"\r\n") == b"\r\n":
            return b""
    raise ValueError(f"more than {_TRAILER_LIMIT} trailers")


_BROKEN = (OSError, EOFError, asyncio.LimitOverrunError, ValueError)
"""Raised when the server closes the connection or does not speak HTTP."""


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
