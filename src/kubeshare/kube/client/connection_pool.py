"""HTTP/1.1 to one server over kept connections, with as little as that needs.

A control loop is made of small requests, and a general HTTP library spends on each of them
four times what encoding, encryption and decoding cost (1.1 ms, of which .9 is its own). This
is a transport for the same client: it writes the request, reads the answer, and keeps the
connection. No proxies, no redirects, no HTTP/2; whoever needs a proxy gets the library's own.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import httpx2

KEPT: Final = 32
"""Idle connections, at most; more may be in use."""
CONNECT_SECONDS: Final = 10.0
_HEAD_LIMIT: Final = 256 << 10
_BODILESS: Final = frozenset({204, 304})


Headers: TypeAlias = list[tuple[bytes, bytes]]


class _Connection:
    """A connection, and whether another request may follow on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def alive(self) -> bool:
        """The server has not hung up, as far as is known."""
        return not (self.reader.at_eof() or self.writer.transport.is_closing())

    def close(self) -> None:
        """Hang up at once."""
        self.writer.transport.abort()


class ConnectionPool(httpx2.AsyncBaseTransport):
    """Sends requests to one server.

    Args:
        context: how its certificate is checked and which one is shown to it; None for plain HTTP.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to a request; its body is read as it is asked for.

        Raises:
            httpx2.ConnectError: there is nobody, or not the right one.
            httpx2.ReadError: the connection broke after the request was begun.
        """
        sent = _head(request) + await request.aread()
        status, headers, stream = await self.exchange(request.url, request.method, sent)
        return httpx2.Response(status, headers=headers, stream=stream, request=request)

    async def exchange(
        self, url: httpx2.URL, method: str, request: bytes
    ) -> tuple[int, Headers, "Body"]:
        """The status, headers and body of the answer to a request.

        Args:
            url: names the server.
            method: of the request.
            request: the whole of it.

        Raises:
            httpx2.ConnectError: there is nobody, or not the right one.
            httpx2.ReadError: the connection broke after the request was begun.
        """
        connection = await self._connection(url)
        try:
            connection.writer.write(request)
            await connection.writer.drain()
            status, headers = _parse(await connection.reader.readuntil(b"\r\n\r\n"))
            while 100 <= status < 200:
                status, headers = _parse(await connection.reader.readuntil(b"\r\n\r\n"))
            body = Body(self, connection, method, status, headers)
            if body.length is not None:
                await body.load()
        except _BROKEN as error:
            connection.close()
            raise httpx2.ReadError(_words(error)) from error
        except BaseException:
            connection.close()
            raise
        return status, headers, body

    async def aclose(self) -> None:
        """Hang up all idle connections."""
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
                opened = await asyncio.open_connection(
                    url.host, port, ssl=self._context, limit=_HEAD_LIMIT
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no answer in {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise httpx2.ConnectError(_words(error)) from error
        return _Connection(*opened)

    def keep(self, connection: _Connection) -> None:
        """Have a connection back whose answer has been read to its end."""
        if len(self._idle) < KEPT and connection.alive:
            self._idle.append(connection)
        else:
            connection.close()


class Body(httpx2.AsyncByteStream):
    """The body of an answer.

    Attributes:
        length: bytes, where the answer says so; None for one in chunks, or up to the end.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        connection: _Connection,
        method: str,
        status: int,
        headers: Headers,
    ) -> None:
        known = {name.lower(): value for name, value in headers}
        self._pool = pool
        self._connection: _Connection | None = connection
        self._closes = known.get(b"connection", b"").lower() == b"close"
        self._chunked = b"chunked" in known.get(b"transfer-encoding", b"").lower()
        self._loaded = b""
        self.length: int | None = None
        if method == "HEAD" or status in _BODILESS:
            self.length, self._chunked = 0, False
        elif not self._chunked and b"content-length" in known:
            self.length = int(known[b"content-length"])

    async def load(self) -> None:
        """Read a body of known length, and be done with the connection."""
        assert self._connection is not None
        assert self.length is not None
        self._loaded = await self._connection.reader.readexactly(self.length)
        self._finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._next():
            yield part

    async def read(self) -> bytes:
        """What is left of it, whole.

        Raises:
            httpx2.ReadError: the connection broke.
        """
        parts = []
        while part := await self._next():
            parts.append(part)
        return b"".join(parts)

    async def _next(self) -> bytes:
        """The next part; empty at the end."""
        if self._connection is None:
            loaded, self._loaded = self._loaded, b""
            return loaded
        reader = self._connection.reader
        try:
            if not self._chunked:
                return await reader.read(_HEAD_LIMIT)
            if size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                return (await reader.readexactly(size + 2))[:-2]
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
        except _BROKEN as error:
            raise httpx2.ReadError(_words(error)) from error
        self._finish()
        return b""

    async def aclose(self) -> None:
        """Hang up where the body has not been read to its end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        if self._closes:
            connection.close()
        else:
            self._pool.keep(connection)


_BROKEN = (OSError, EOFError, asyncio.LimitOverrunError, ValueError)
"""What becomes of a read or write when the other side hangs up or does not speak HTTP."""


def _head(request: httpx2.Request) -> bytes:
    first = b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)
    fields = [b"%b: %b" % (name, value) for name, value in request.headers.raw]
    return b"\r\n".join([first, *fields, b"", b""])


def _parse(head: bytes) -> tuple[int, Headers]:
    """The status and the headers of an answer.

    Raises:
        ValueError: that is not HTTP.
    """
    first, *lines = head[:-4].split(b"\r\n")
    version, status, *_ = first.split(b" ", 2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"not an answer of HTTP/1: {first[:40]!r}")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError(f"not a header: {line[:40]!r}")
        headers.append((name, value.strip()))
    return int(status), headers


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
