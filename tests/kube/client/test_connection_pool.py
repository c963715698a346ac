"""Requests over kept connections, against servers with scripted responses."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2
import pytest

from deadlines import DEADLINE_S
from kubeshare.kube.client import connection_pool
from kubeshare.kube.client.connection_pool import ConnectionPool
from kubeshare.kube.client.errors import ResponseTooLargeError
from kubeshare.simulator.control import run_virtual, until

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


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LONG = b"x" * 50


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(None, "0 bytes read on a total of undefined expected bytes", id="hung up"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
            "2 bytes read on a total of 9 expected bytes",
            id="cut off",
        ),
        pytest.param(
            b"SSH-2.0-" + LONG + b"\r\n\r\n",
            f"not an HTTP/1 response: {b'SSH-2.0-' + LONG[:32]!r}",
            id="another protocol",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + LONG + b"\r\n\r\n",
            f"not a header: {LONG[:40]!r}",
            id="no header",
        ),
        pytest.param(CHUNKED + b"zz\r\n", "not a chunk size: b'zz\\r\\n'", id="no length"),
        pytest.param(
            CHUNKED + LONG + b"\r\n", f"not a chunk size: {LONG[:40]!r}", id="long chunk size"
        ),
        pytest.param(
            CHUNKED + b"5\r\nab", "2 bytes read on a total of 7 expected bytes", id="cut chunk"
        ),
        pytest.param(
            CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n",
            "not a chunk size: b'0x2\\r\\n'",
            id="chunk size of Python",
        ),
        pytest.param(
            CHUNKED + b"2\r\nabcd0\r\n\r\n",
            "a chunk of more than its 2 bytes",
            id="chunk longer than its size",
        ),
        pytest.param(
            CHUNKED + b"0\r\n" + b"a: b\r\n" * 64 + b"\r\n",
            "more than 64 trailers",
            id="trailers without end",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 0_2\r\n\r\nok",
            "not a Content-Length: b'0_2'",
            id="length of Python",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: " + LONG + b"\r\n\r\nok",
            f"not a Content-Length: {LONG[:40]!r}",
            id="long length",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" * 8 + FINE,
            "more than 8 interim responses",
            id="interim responses without end",
        ),
    ],
)
def test_an_incomplete_or_malformed_response_is_an_error(answer: bytes | None, words: str) -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        with pytest.raises(httpx2.ReadError) as caught:
            await client.get("/")
        assert str(caught.value) == words
        assert (await client.get("/")).text == "ok"

    ask(lambda: Speaker(answer, None, FINE) if answer else Speaker(None, FINE), act)


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"2\r\nok\r\n0\r\n" + b"a: b\r\n" * 63 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 7 + FINE,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: identity\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
    ids=["trailers", "interim responses", "no transfer encoding", "letters of both cases"],
)
def test_what_may_surround_a_response_is_read_with_it(answer: bytes) -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        assert (await client.get("/")).text == "ok"
        assert (await client.get("/")).text == "ok"
        assert speaker.connections == 1

    ask(lambda: Speaker(answer, FINE), act)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
        ("HEAD", CHUNKED),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
    ],
)
def test_a_response_without_a_body_ends_with_its_head(method: str, answer: bytes) -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        assert (await client.request(method, "/")).content == b""
        assert (await client.get("/")).text == "ok"
        assert speaker.connections == 1

    ask(lambda: Speaker(answer, FINE), act)


def test_a_body_may_end_with_its_connection() -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        assert (await client.get("/")).text == "until the end"
        assert (await client.get("/")).text == "ok"

    ask(lambda: Speaker(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", None, FINE), act)


def test_a_few_idle_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_IDLE", 2)

    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        for opened in (3, 4):
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(client.get("/"))
            assert speaker.connections == opened

    ask(lambda: Speaker(*[FINE] * 6), act)


def test_a_pool_that_is_closed_closes_what_is_idle() -> None:
    async def act(client: httpx2.AsyncClient, speaker: Speaker) -> None:
        await client.get("/")
        await client.aclose()
        await speaker.hung_up.wait()

    ask(lambda: Speaker(FINE), act)


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


@pytest.mark.parametrize(
    ("url", "context", "port"),
    [
        ("http://host", None, 80),
        ("http://host:8080", None, 8080),
        ("https://host", ssl.create_default_context(), 443),
        ("https://host:6443", ssl.create_default_context(), 6443),
    ],
)
def test_a_connection_has_the_port_and_the_certificates_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, url: str, context: ssl.SSLContext | None, port: int
) -> None:
    opened: list[tuple[object, ...]] = []

    async def open_connection(host: str, port: int, **more: object) -> None:
        opened.append((host, port, more["ssl"]))
        raise OSError("nobody there")

    monkeypatch.setattr(asyncio, "open_connection", open_connection)

    async def main() -> None:
        with pytest.raises(httpx2.ConnectError) as caught:
            await ConnectionPool(context).exchange(httpx2.URL(url), "GET", b"")
        assert str(caught.value) == "nobody there"

    asyncio.run(main())
    assert opened == [("host", port, context)]


def test_a_server_that_does_not_accept_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_connection(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", open_connection)

    async def main() -> float:
        with pytest.raises(httpx2.ConnectTimeout) as caught:
            await ConnectionPool(None).exchange(httpx2.URL("http://host"), "GET", b"")
        assert str(caught.value) == "no answer in 10 s"
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(10)
