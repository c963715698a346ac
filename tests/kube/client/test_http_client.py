"""Direct requests, against a server that records them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import httpx2
import pytest

from deadlines import DEADLINE_S
from kubeshare.kube.client.connection_pool import ConnectionPool
from kubeshare.kube.client.http_client import IMPERSONATE_USER, DirectClient

T = TypeVar("T")

FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
BUSY = b"HTTP/1.1 429 Busy\r\nRetry-After: 3\r\ncontent-length: 0\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
CUT = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"


class Server:
    """Gives each request the next of its answers, and hangs up after one that is cut off.

    Attributes:
        heads: the requests that came, without their bodies.
        bodies: these.
        connections: how many were opened.
    """

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = [line for line in head.splitlines() if line.startswith("content-length")]
                size = int(length[0].partition(":")[2]) if length else 0
                self.bodies.append(await reader.readexactly(size))
                answer = self._answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if answer == CUT:
                    return
            await reader.read()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


class Renewing(httpx2.Auth):
    """Credentials that get old: another number each time that they are refused."""

    def __init__(self) -> None:
        self.number = 0

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        request.headers["authorization"] = f"Bearer {self.number}"
        answer = yield request
        if answer.status_code == 401:
            self.number += 1
            request.headers["authorization"] = f"Bearer {self.number}"
            yield request


def ask(
    server: Server,
    act: Callable[[DirectClient], Awaitable[T]],
    *,
    auth: httpx2.Auth | None = None,
    headers: dict[str, str] | None = None,
    path: str = "",
) -> T:
    async def main() -> T:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}{path}"
        parameters = {"base_url": url, "auth": auth, "headers": headers, "timeout": None}
        async with (
            listening,
            DirectClient(ConnectionPool(None), **parameters) as client,
        ):
            return await act(client)

    return asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_a_request_has_its_head_and_its_body() -> None:
    server = Server(FINE, FINE)

    async def act(client: DirectClient) -> None:
        answer = await client.send_direct(
            "PATCH", "/api/v1/pods/a?b=c", "application/json", b'{"d": 1}'
        )
        assert (answer.status, answer.body) == (200, b"ok")
        await client.send_direct("GET", "/api")

    ask(server, act)
    assert server.heads[0].startswith("PATCH /api/v1/pods/a?b=c HTTP/1.1\r\nhost: 127.0.0.1:")
    assert "content-type: application/json\r\n" in server.heads[0]
    assert server.bodies == [b'{"d": 1}', b""]
    assert "content-" not in server.heads[1]
    assert "authorization" not in server.heads[1]
    assert server.connections == 1


def test_a_request_in_the_name_of_another_user_says_so() -> None:
    server = Server(FINE, FINE)

    async def act(client: DirectClient) -> None:
        await client.send_direct("DELETE", "/api/v1/pods/a")
        await client.get("/watch")

    ask(server, act, headers={IMPERSONATE_USER: "someone"})
    assert ["impersonate-user: someone\r\n" in head for head in server.heads] == [True, True]


def test_the_path_of_the_base_url_precedes_that_of_the_request() -> None:
    server = Server(FINE)
    ask(server, lambda client: client.send_direct("GET", "/api"), path="/clusters/one/")
    assert server.heads[0].startswith("GET /clusters/one/api HTTP/1.1\r\n")


def test_a_chunked_body_is_joined_and_its_connection_reused() -> None:
    server = Server(CHUNKS, FINE)

    async def act(client: DirectClient) -> bytes:
        answer = await client.send_direct("GET", "/")
        await client.send_direct("GET", "/")
        return answer.body

    assert ask(server, act) == b"abcde"
    assert server.connections == 1


def test_requests_of_httpx_use_the_same_connections() -> None:
    server = Server(FINE, CHUNKS, FINE)

    async def act(client: DirectClient) -> str:
        await client.send_direct("GET", "/")
        text = (await client.get("/watch")).text
        await client.send_direct("GET", "/")
        return text

    assert ask(server, act) == "abcde"
    assert server.connections == 1


def test_what_is_cut_off_is_an_error_and_its_connection_is_not_used_again() -> None:
    server = Server(CUT, FINE)

    async def act(client: DirectClient) -> bytes:
        with pytest.raises(httpx2.ReadError):
            await client.send_direct("GET", "/")
        return (await client.send_direct("GET", "/")).body

    assert ask(server, act) == b"ok"
    assert server.connections == 2


def test_refused_credentials_are_renewed_once_and_reused() -> None:
    server = Server(REFUSED, FINE, FINE, REFUSED, REFUSED)

    async def act(client: DirectClient) -> list[int]:
        return [(await client.send_direct("GET", "/")).status for _ in range(3)]

    assert ask(server, act, auth=Renewing()) == [200, 200, 401]
    said = [head.partition("Bearer ")[2][0] for head in server.heads]
    assert said == ["0", "1", "1", "1", "2"]


def test_credentials_of_which_there_are_no_others_are_refused() -> None:
    server = Server(REFUSED)

    async def act(client: DirectClient) -> int:
        return (await client.send_direct("GET", "/")).status

    assert ask(server, act, auth=httpx2.BasicAuth("a", "b")) == 401
    assert "authorization: Basic " in server.heads[0]


def test_headers_of_an_answer_are_known_by_their_names_in_small_letters() -> None:
    answer = ask(Server(BUSY), lambda client: client.send_direct("GET", "/"))
    assert (answer.status, answer.headers[b"retry-after"]) == (429, b"3")
