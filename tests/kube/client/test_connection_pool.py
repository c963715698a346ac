"""Requests over kept connections, against servers with scripted responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2
import pytest

from deadlines import DEADLINE_S
from kubeshare.kube.client.connection_pool import ConnectionPool
from kubeshare.kube.client.errors import ResponseTooLargeError
from kubeshare.simulator.control import until

T = TypeVar("T")

FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Speaker:
    """Answers each request of a connection with the next of its answers; ``None`` hangs up.

    Attributes:
        connections: how many were opened.
        heads: of the requests that came.
    """

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []
        self.hung_up = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self._answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if self._answers[:1] == [None]:
                    del self._answers[0]
                    break
            else:
                await reader.read()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            self.hung_up.set()


def ask(
    speaker: Callable[[], Speaker], act: Callable[[httpx2.AsyncClient, Speaker], Awaitable[T]]
) -> T:
    async def main() -> T:
        spoken = speaker()
        server = await asyncio.start_server(spoken, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = ConnectionPool(None)
        async with (
            server,
            httpx2.AsyncClient(
                transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=None
            ) as client,
        ):
            return await act(client, spoken)

    return asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_requests_follow_each_other_on_one_connection() -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        for _ in range(3):
            assert (await client.get("/path?a=b")).text == "ok"
        assert speaker.connections == 1
        assert speaker.heads[0].startswith(b"GET /path?a=b HTTP/1.1\r\n")

    ask(lambda: Speaker(FINE, FINE, FINE), act)


def test_a_chunked_body_is_joined_and_its_connection_reused() -> None:
    chunks = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    )

    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        assert (await client.get("/")).text == "abcde"
        assert (await client.get("/")).text == "ok"
        assert speaker.connections == 1

    ask(lambda: Speaker(chunks, FINE), act)


def test_a_stream_is_read_chunk_by_chunk() -> None:
    first = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na\n\r\n"

    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        async with client.stream("GET", "/") as response:
            assert await anext(response.aiter_bytes()) == b"a\n"
        # Left before its end: nothing else may come on that connection.
        assert (await client.get("/")).text == "ok"
        assert speaker.connections == 2

    ask(lambda: Speaker(first, FINE), act)


@pytest.mark.parametrize(
    "head", [b"content-length: 6\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n6\r\n"]
)
def test_no_more_is_read_than_the_limit(head: bytes) -> None:
    large = b"HTTP/1.1 200 OK\r\n" + head + b"abcdef\r\n0\r\n\r\n"

    async def read(pool: ConnectionPool, url: httpx2.URL) -> None:
        _, _, body = await pool.exchange(url, "GET", b"GET / HTTP/1.1\r\n\r\n", limit=5)
        try:
            await body.read(5)
        finally:
            await body.aclose()

    async def main() -> None:
        speaker = Speaker(large)
        server = await asyncio.start_server(speaker, "127.0.0.1", 0)
        url = httpx2.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        pool = ConnectionPool(None)
        async with server:
            with pytest.raises(ResponseTooLargeError, match="more than 5 bytes"):
                await read(pool, url)
            # Nothing else may come on that connection.
            await speaker.hung_up.wait()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok"

    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        await client.get("/")
        await client.get("/")
        assert speaker.connections == 2

    ask(lambda: Speaker(closing, FINE), act)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 99 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0_2\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + FINE,
    ],
    ids=[
        "hung up",
        "cut off",
        "another protocol",
        "no header",
        "no length",
        "cut chunk",
        "chunk size of Python",
        "chunk longer than its size",
        "trailers without end",
        "length of Python",
        "interim responses without end",
    ],
)
def test_an_incomplete_or_malformed_response_is_an_error(answer: bytes | None) -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        with pytest.raises(httpx2.ReadError):
            await client.get("/")
        assert (await client.get("/")).text == "ok"

    ask(lambda: Speaker(answer, None, FINE) if answer else Speaker(None, FINE), act)


def test_a_refused_connection_is_reported_as_not_sent() -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:1/")

    ask(Speaker, act)


def test_an_answer_that_is_given_up_does_not_become_that_of_the_next_request() -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        slow = asyncio.create_task(client.get("/slow"))
        await until(lambda: speaker.heads)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await client.get("/")).text == "ok"
        assert speaker.connections == 2

    ask(lambda: Speaker(b"", FINE), act)
