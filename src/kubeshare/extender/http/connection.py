"""Serves the requests of one connection, one after the other."""

import asyncio
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import h11
import structlog

from kubeshare.extender.http.messages import Head, Limits, Response, Service

log = structlog.get_logger(__name__)

_CHUNK: Final = 64 << 10
_CLOSING: Final = (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)


class BodyBudget:
    """The bytes of all bodies that are held at one time.

    Args:
        limit: the most bytes.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        """Count more bytes; False if there are too many."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Count bytes that are no longer held."""
        self._left += size


class RefusedRequestError(Exception):
    """A request whose body is not read to its end; the connection is closed after the answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class Connection:
    """One connection.

    Args:
        reader: from the client.
        writer: to the client.
        service: answers requests.
        limits: bounds.
        budget: of the bodies of all connections.

    Attributes:
        busy: whether a request is being answered.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: Service,
        limits: Limits,
        budget: BodyBudget,
    ) -> None:
        self.busy = False
        self._reader = reader
        self._writer = writer
        self._service = service
        self._limits = limits
        self._budget = budget
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._ending = False

    def end(self) -> None:
        """Close the connection after the request that is being answered."""
        self._ending = True

    async def serve(self) -> None:
        """Serve requests until either side closes the connection."""
        try:
            while await self._serve_one():
                self._protocol.start_next_cycle()
        except (OSError, TimeoutError, h11.LocalProtocolError):
            pass  # the client is gone, or too slow to be told
        finally:
            self._writer.close()

    async def refuse(self, response: Response) -> None:
        """Answer without having read a request, and close the connection."""
        with suppress(OSError, TimeoutError, h11.LocalProtocolError):
            await self._write(response)
        self._writer.close()

    async def _serve_one(self) -> bool:
        """Serve a request; False if it was the last one."""
        head = await self._read_head()
        if head is None:
            return False
        self.busy = True
        began = time.perf_counter()
        try:
            response = await self._respond(head)
        except RefusedRequestError as refused:
            await self._refuse_rest(refused.response)
            self._service.observe(head, refused.response, time.perf_counter() - began)
            return False
        await self._write(response)
        self._service.observe(head, response, time.perf_counter() - began)
        self.busy = False
        return self._protocol.our_state not in _CLOSING

    async def _respond(self, head: Head) -> Response:
        refused = self._service.refuse(head)
        if refused is not None:
            raise RefusedRequestError(refused)
        chunks: list[bytes] = []
        try:
            await self._read_body(head, chunks)
            async with asyncio.timeout(self._limits.answer_seconds):
                return await self._service.answer(head, b"".join(chunks))
        except TimeoutError:
            words = f"no answer within {self._limits.answer_seconds:g} s"
            return Response.text(HTTPStatus.SERVICE_UNAVAILABLE, words)
        except RefusedRequestError:
            raise
        except Exception:
            log.exception("a request failed", path=head.path)
            return Response.text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; see the program's log")
        finally:
            self._budget.give_back(sum(map(len, chunks)))

    async def _read_head(self) -> Head | None:
        """The head of the next request; None if there is none, or it is not acceptable."""
        try:
            event = await self._first_event()
        except h11.RemoteProtocolError as error:
            await self._refuse_rest(Response.text(error.error_status_hint, str(error)))
            return None
        except TimeoutError:
            return None
        if not isinstance(event, h11.Request):
            return None
        path = event.target.partition(b"?")[0].decode(errors="replace")
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        return Head(event.method.decode(), path, headers)

    async def _first_event(self) -> object:
        event = self._protocol.next_event()
        if event is not h11.NEED_DATA:  # the client did not wait for the answer before
            return event
        async with asyncio.timeout(self._limits.idle_seconds):
            await self._receive()
        async with asyncio.timeout(self._limits.head_seconds):
            return await self._next_event()

    async def _read_body(self, head: Head, chunks: list[bytes]) -> None:
        """Read a body into `chunks`.

        Raises:
            RefusedRequestError: it is too large or too slow, or is not one of HTTP.
        """
        length = head.header(b"content-length")
        if length is not None and int(length) > self._limits.body_bytes:
            raise self._too_large()
        if self._protocol.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                await self._read_chunks(chunks)
        except TimeoutError:
            words = f"the body did not come within {self._limits.body_seconds:g} s"
            raise RefusedRequestError(Response.text(HTTPStatus.REQUEST_TIMEOUT, words)) from None
        except h11.RemoteProtocolError as error:
            response = Response.text(error.error_status_hint, str(error))
            raise RefusedRequestError(response) from None

    async def _read_chunks(self, chunks: list[bytes]) -> None:
        size = 0
        while isinstance(event := await self._next_event(), h11.Data):
            size += len(event.data)
            if size > self._limits.body_bytes:
                raise self._too_large()
            if not self._budget.take(len(event.data)):
                words = "too many large requests at one time"
                raise RefusedRequestError(Response.text(HTTPStatus.SERVICE_UNAVAILABLE, words))
            chunks.append(bytes(event.data))

    def _too_large(self) -> RefusedRequestError:
        words = f"the body is larger than {self._limits.body_bytes} bytes"
        return RefusedRequestError(Response.text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words))

    async def _next_event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event

    async def _receive(self) -> None:
        self._protocol.receive_data(await self._reader.read(_CHUNK))

    async def _refuse_rest(self, response: Response) -> None:
        """Answer a request of which not all has been read, and let the client read the answer."""
        self.end()
        await self._write(response)
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_seconds):
                while await self._reader.read(_CHUNK):
                    pass

    async def _write(self, response: Response) -> None:
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            *response.headers,
        ]
        if self._ending:
            headers.append(("connection", "close"))
        reason = response.phrase.encode()
        self._send(h11.Response(status_code=response.status, headers=headers, reason=reason))
        self._send(h11.Data(data=response.body))
        self._send(h11.EndOfMessage())
        async with asyncio.timeout(self._limits.write_seconds):
            await self._writer.drain()

    def _send(self, event: h11.Event) -> None:
        data = self._protocol.send(event)
        if data:
            self._writer.write(data)
