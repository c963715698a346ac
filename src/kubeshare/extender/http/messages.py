"""Requests, responses, and the bounds of the server."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Protocol

from msgspec import Struct

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class Limits(Struct, frozen=True, kw_only=True):
    """What a client can send, and how long it may take.

    Attributes:
        head_bytes: of the request line and the headers.
        body_bytes: of one body. 1000 whole nodes of 30 KB fit; names of nodes take far less.
        buffered_bytes: of all bodies that are being read or answered at one time.
        connections: open at one time.
        head_seconds: from the first byte of a request to the end of its head.
        body_seconds: from there to the end of its body; kube-scheduler waits 5 s in all.
        answer_seconds: to find the answer.
        write_seconds: for the client to take the answer.
        idle_seconds: between two requests; more than the 90 s after which a client in Go closes
            an idle connection itself, so it never meets one that is just being closed.
        linger_seconds: for which the rest of a refused request is read and thrown away: a
            connection that is closed on unread data loses the answer.
        drain_seconds: for requests that are being answered when the server ends.
    """

    head_bytes: int = 16 << 10
    body_bytes: int = 32 << 20
    buffered_bytes: int = 128 << 20
    connections: int = 512
    head_seconds: float = 5.0
    body_seconds: float = 5.0
    answer_seconds: float = 15.0
    write_seconds: float = 5.0
    idle_seconds: float = 120.0
    linger_seconds: float = 2.0
    drain_seconds: float = 5.0


class Head(Struct, frozen=True):
    """A request without its body.

    Attributes:
        method: for example ``POST``.
        path: without the query.
        headers: names in lower case, and values.
    """

    method: str
    path: str
    headers: Sequence[tuple[bytes, bytes]] = ()

    def header(self, name: bytes) -> bytes | None:
        """The value of a header by its name in lower case; None if it is absent or repeated."""
        found = [value for key, value in self.headers if key == name]
        return found[0] if len(found) == 1 else None


class Response(Struct, frozen=True):
    """An answer.

    Attributes:
        status: the HTTP status.
        body: the body.
        content_type: its media type.
        headers: further headers.
    """

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def text(cls, status: int, words: str) -> "Response":
        """An answer in words."""
        return cls(status, f"{words}\n".encode())

    @property
    def phrase(self) -> str:
        """The reason phrase of the status."""
        return HTTPStatus(self.status).phrase


class Service(Protocol):
    """What a server serves."""

    def refuse(self, head: Head) -> Response | None:
        """The answer to a request that is refused before its body is read; None to read it."""
        ...

    async def answer(self, head: Head, body: bytes) -> Response:
        """The answer to a request."""
        ...

    def observe(self, head: Head, response: Response, seconds: float) -> None:
        """Count a request and the seconds from its head to its answer."""
        ...
