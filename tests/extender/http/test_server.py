"""The server answers many requests of a connection, and bounds what a client can do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from deadlines import DEADLINE_S
from kubeshare.extender.http.messages import Head, Limits, Response
from kubeshare.extender.http.server import HttpServer

LIMITS = Limits(
    body_bytes=1000,
    buffered_bytes=1500,
    head_seconds=DEADLINE_S,
    body_seconds=DEADLINE_S,
    answer_seconds=DEADLINE_S,
    idle_seconds=DEADLINE_S,
    linger_seconds=DEADLINE_S,
    drain_seconds=0.2,
)
SHORT_S = 0.5
"""For the one limit that a test lets pass."""


class Echo:
    """Answers with the body, and refuses one path."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    def refuse(self, head: Head) -> Response | None:
        return Response.text(401, "no") if head.path == "/secret" else None

    async def answer(self, head: Head, body: bytes) -> Response:
        if head.path == "/fail":
            raise ValueError("on purpose")
        if head.path == "/wait":
            self.entered.set()
            await self.go.wait()
        return Response(200, head.method.encode() + b" " + body)

    def observe(self, head: Head, response: Response, seconds: float) -> None:
        assert seconds >= 0
        self.seen.append((head.path, response.status))


@asynccontextmanager
async def running(limits: Limits = LIMITS) -> AsyncIterator[tuple[Echo, HttpServer]]:
    service = Echo()
    server = HttpServer(0, service, limits=limits)
    task = asyncio.create_task(server.run())
    await server.listening.wait()
    try:
        yield service, server
    finally:
        task.cancel()
        await asyncio.wait([task])


async def exchange(server: HttpServer, *parts: bytes) -> bytes:
    """All that the server answers to these bytes until it closes the connection."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for part in parts:
            writer.write(part)
            await writer.drain()
        answer = await reader.read()
        writer.close()
        return answer


def post(path: str, body: bytes = b"", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n{headers}\r\n"
    return head.encode() + body


CLOSE = "Connection: close\r\n"


def run(test: Callable[[Echo, HttpServer], Awaitable[None]], limits: Limits = LIMITS) -> None:
    async def main() -> None:
        async with running(limits) as (service, server):
            await test(service, server)

    asyncio.run(main())


def test_requests_follow_each_other_on_a_connection() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        answer = await exchange(server, post("/a", b"one"), post("/b?c", b"two", CLOSE))
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.index(b"POST one") < answer.index(b"POST two")
        assert service.seen == [("/a", 200), ("/b", 200)]

    run(test)


def test_requests_that_arrive_together_are_all_answered() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        del service
        answer = await exchange(server, post("/a", b"one") + post("/b", b"two", CLOSE))
        assert answer.index(b"POST one") < answer.index(b"POST two")

    run(test)


def test_a_body_may_come_in_chunks() -> None:
    chunked = (
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    )

    async def test(service: Echo, server: HttpServer) -> None:
        del service
        assert (await exchange(server, chunked)).endswith(b"POST onetwo")

    run(test)


def test_a_client_that_asks_whether_to_send_the_body_is_answered() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        del service
        headers = f"Expect: 100-continue\r\n{CLOSE}"
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post("/a", headers=headers, length=3))
            assert (await reader.readline()).startswith(b"HTTP/1.1 100")
            writer.write(b"one")
            assert (await reader.read()).endswith(b"POST one")
            writer.close()

    run(test)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(post("/a", length=100 << 20), 413, id="announces 100 MB"),
        pytest.param(
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"200\r\n" + b"x" * 512 + b"\r\n" + b"200\r\n" + b"x" * 512 + b"\r\n",
            413,
            id="sends too much",
        ),
        pytest.param(post("/secret", length=500), 401, id="is not allowed"),
        pytest.param(post("/fail", headers=CLOSE), 500, id="makes the service fail"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="is not HTTP"),
        pytest.param(b"GET /a HTTP/1.1\r\n\r\n", 400, id="has no host"),
        pytest.param(b"GET / HTTP/1.1\r\na: " + b"x" * 20_000, 431, id="has a long head"),
        pytest.param(post("/a", headers="Content-Length: 5\r\n"), 400, id="has two lengths"),
        pytest.param(
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            id="has a bad chunk",
        ),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_and_ends_the_connection(sent: bytes, status: int) -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        del service
        answer = await exchange(server, sent)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"connection: close" in answer.lower()
        assert (await exchange(server, post("/a", b"next", CLOSE))).endswith(b"POST next")

    run(test)


@pytest.mark.parametrize(
    ("sent", "limit", "status"),
    [
        pytest.param(post("/a", b"x" * 10, length=20), "body_seconds", 408, id="body"),
        pytest.param(post("/wait", headers=CLOSE), "answer_seconds", 503, id="answer"),
    ],
)
def test_what_takes_too_long_is_refused_and_ends_the_connection(
    sent: bytes, limit: str, status: int
) -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        del service
        answer = await exchange(server, sent)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"connection: close" in answer.lower()

    run(test, msgspec.structs.replace(LIMITS, **{limit: SHORT_S}))


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"", "idle_seconds"),
        (b"POST /a HT", "head_seconds"),
        (post("/a", b"one"), "idle_seconds"),
    ],
)
def test_a_silent_client_loses_its_connection(sent: bytes, limit: str) -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        del service
        answer = await exchange(server, sent)
        assert answer.count(b"HTTP/1.1") == sent.count(b"one")

    run(test, msgspec.structs.replace(LIMITS, **{limit: SHORT_S}))


def test_a_client_that_sends_byte_after_byte_has_the_time_of_one_head() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            answer = asyncio.create_task(reader.read())
            while not answer.done():
                writer.write(b"P")
                await asyncio.wait([answer], timeout=SHORT_S / 10)
            await asyncio.gather(answer, return_exceptions=True)  # it may have been reset
            writer.close()
        assert service.seen == []

    run(test, msgspec.structs.replace(LIMITS, head_seconds=SHORT_S))


def test_by_default_100_mb_are_refused_before_they_are_sent() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        answer = await exchange(server, post("/a", length=100 << 20))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert service.seen == []

    run(test, msgspec.structs.replace(Limits(), linger_seconds=DEADLINE_S))


def test_a_client_that_leaves_is_no_error() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post("/wait"))
        await service.entered.wait()
        writer.transport.abort()
        service.go.set()
        assert (await exchange(server, post("/a", b"next", CLOSE))).endswith(b"POST next")
        del reader

    run(test)


def test_all_bodies_together_are_bounded() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post("/wait", b"x" * 900, CLOSE))
            await service.entered.wait()
            assert b"503" in (await exchange(server, post("/a", b"x" * 900, CLOSE)))[:20]
            service.go.set()
            assert b"200 OK" in await reader.read()
            writer.close()
            assert b"200 OK" in await exchange(server, post("/a", b"x" * 900, CLOSE))

    run(test)


def test_connections_are_bounded() -> None:
    async def test(service: Echo, server: HttpServer) -> None:
        async with asyncio.timeout(DEADLINE_S):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post("/wait"))
            await service.entered.wait()
            assert b"503" in (await exchange(server))[:20]
            writer.close()

    limits = msgspec.structs.replace(LIMITS, connections=1)
    run(test, limits)


def test_a_request_that_is_being_answered_ends_before_the_server() -> None:
    async def main() -> None:
        limits = msgspec.structs.replace(LIMITS, drain_seconds=DEADLINE_S)
        service = Echo()
        server = HttpServer(0, service, limits=limits)
        task = asyncio.create_task(server.run())
        await server.listening.wait()
        async with asyncio.timeout(DEADLINE_S):
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", server.port)
            idle_writer.write(post("/a"))
            await idle.readuntil(b"POST ")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post("/wait", b"last"))
            await service.entered.wait()
            task.cancel()
            assert await idle.read() == b""
            service.go.set()
            answer = await reader.read()
            assert answer.endswith(b"POST last")
            assert b"connection: close" in answer.lower()
            await asyncio.wait([task])
            for each in (writer, idle_writer):
                each.close()

    asyncio.run(main())
