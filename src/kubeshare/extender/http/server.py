"""Listens, and serves each connection in a task of its own."""

import asyncio
import ssl
from http import HTTPStatus

from kubeshare.extender.http.connection import BodyBudget, Connection
from kubeshare.extender.http.messages import Limits, Response, Service


class HttpServer:
    """An HTTP/1.1 server.

    Args:
        port: TCP port on all addresses; 0 for a free one on the loopback.
        service: answers requests.
        tls: certificates; None for plain HTTP.
        limits: bounds.

    Attributes:
        port: the port that the server listens on, once ``run`` has begun.
        listening: set once the server listens.
    """

    def __init__(
        self,
        port: int,
        service: Service,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.port = port
        self.listening = asyncio.Event()
        self._service = service
        self._tls = tls
        self._limits = limits or Limits()
        self._budget = BodyBudget(self._limits.buffered_bytes)
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def run(self) -> None:
        """Serve until cancelled; requests that are being answered then get a while to end.

        Raises:
            OSError: the port is in use.
        """
        server = await asyncio.start_server(
            self._accept,
            None if self.port else "127.0.0.1",
            self.port,
            ssl=self._tls,
            ssl_handshake_timeout=self._limits.head_seconds if self._tls else None,
            backlog=self._limits.connections,
        )
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        try:
            await server.serve_forever()
        finally:
            server.close()
            await self._drain()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._service, self._limits, self._budget)
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.connections:
            words = f"more than {self._limits.connections} connections"
            connection.end()
            await connection.refuse(Response.text(HTTPStatus.SERVICE_UNAVAILABLE, words))
            return
        self._connections[task] = connection
        try:
            await connection.serve()
        except asyncio.CancelledError:
            pass  # by `_drain`; asyncio would log it
        finally:
            del self._connections[task]

    async def _drain(self) -> None:
        """End idle connections at once, and the others when they have answered."""
        busy = []
        for task, connection in tuple(self._connections.items()):
            connection.end()
            if connection.busy:
                busy.append(task)
            else:
                task.cancel()
        if busy:
            await asyncio.wait(busy, timeout=self._limits.drain_seconds)
        for task in tuple(self._connections):
            task.cancel()
