"""Serves a fake API server on the loopback, to programs in other processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11

from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control.requests import Answer

_CHUNK = 1 << 16


@asynccontextmanager
async def serving(server: FakeApiServer) -> AsyncIterator[str]:
    """Serve plain HTTP; yields the URL."""
    open_now: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now[task] = writer
        try:
            await _Connection(server, reader, writer).serve()
        except (OSError, h11.ProtocolError):
            pass  # the client is gone
        finally:
            del open_now[task]
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        server.end_watches()
        for writer in open_now.values():
            writer.close()
        await asyncio.gather(*open_now)


class _Connection:
    """One connection of a client."""

    def __init__(
        self, server: FakeApiServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Answer requests until the client closes the connection."""
        while isinstance(request := await self._event(), h11.Request):
            await self._answer(request)
            if self._protocol.our_state is not h11.DONE:
                return
            self._protocol.start_next_cycle()

    async def _answer(self, request: h11.Request) -> None:
        headers = {name: value.decode() for name, value in request.headers}
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
        answer = await self._server.receive(
            request.method.decode(),
            request.target.decode(),
            content_type=headers.get(b"content-type", ""),
            body=bytes(body),
            client=headers.get(b"user-agent", ""),
        )
        await self._send(answer)

    async def _send(self, answer: Answer) -> None:
        head = [(b"content-type", b"application/json"), *answer.headers.items()]
        if answer.stream is None:
            head.append((b"content-length", b"%d" % len(answer.body)))
        await self._write(h11.Response(status_code=answer.status, headers=head))
        if answer.stream is None:
            await self._write(h11.Data(data=answer.body))
        else:
            try:
                async for line in answer.stream:
                    await self._write(h11.Data(data=line))
            finally:
                await answer.stream.aclose()
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        data = self._protocol.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self._reader.read(_CHUNK))
        return event
