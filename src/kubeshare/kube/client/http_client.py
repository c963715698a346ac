"""An HTTP client with a direct path for whole responses.

All requests but watches are of that kind, about eight for each SharePod. For each of them httpx2
merges URLs, headers, parameters and cookies, follows redirects and decodes compressed bodies,
which costs more than the request itself (decision record 022). Watches and proxied connections
go through httpx2.
"""

import sys
from abc import ABC, abstractmethod
from typing import Any, Final

import httpx2
from msgspec import Struct

from kubeshare.kube.client.connection_pool import ConnectionPool

IMPERSONATE_USER: Final = "impersonate-user"
"""The header that names the user in whose name a request is made."""
_UNAUTHORIZED: Final = 401


class RawResponse(Struct, frozen=True):
    """A response that has been read whole; the names of its headers are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class DirectSender(ABC):
    """Sends requests, and reads their responses whole."""

    @abstractmethod
    async def send_direct(
        self,
        method: str,
        target: str,
        content_type: str = "",
        body: bytes = b"",
        *,
        limit: int = sys.maxsize,
    ) -> RawResponse:
        """Send a request and read the response.

        Args:
            method: the HTTP method.
            target: path and query, relative to the path of the server's address.
            content_type: of the body; ``""`` if there is none.
            body: the body.
            limit: the most bytes of the response's body that are read.

        Raises:
            ResponseTooLargeError: that body is longer.
            httpx2.ConnectError: no connection, or the wrong certificate.
            httpx2.ReadError: the connection broke after the request was begun.
        """


class DirectClient(httpx2.AsyncClient, DirectSender):
    """httpx2's client with ``send_direct``, which bypasses httpx2.

    Args:
        connections: to the server of ``base_url``.
        parameters: those of ``httpx2.AsyncClient``.
    """

    def __init__(self, connections: ConnectionPool, **parameters: Any) -> None:
        super().__init__(transport=connections, **parameters)
        self._connections = connections
        self._path = self.base_url.raw_path.rstrip(b"/")
        self._host = self.base_url.netloc
        user = self.headers.get(IMPERSONATE_USER)
        self._impersonation = f"{IMPERSONATE_USER}: {user}\r\n".encode() if user else b""
        self._authorization: bytes | None = None  # a header line; None until it is known

    async def send_direct(
        self,
        method: str,
        target: str,
        content_type: str = "",
        body: bytes = b"",
        *,
        limit: int = sys.maxsize,
    ) -> RawResponse:
        """Send a request and read the response; after a 401, once more with new credentials."""
        if self._authorization is None:
            self._authorization = await self._credentials(renew=False)
        head = self._head(method, target, content_type, len(body))
        response = await self._exchange(
            method, b"%b%b\r\n%b" % (head, self._authorization, body), limit
        )
        if response.status == _UNAUTHORIZED:
            renewed = await self._credentials(renew=True)
            if renewed:
                self._authorization = renewed
                response = await self._exchange(
                    method, b"%b%b\r\n%b" % (head, renewed, body), limit
                )
        return response

    def _head(self, method: str, target: str, content_type: str, length: int) -> bytes:
        """The head of a request without its credentials and the empty line."""
        head = (
            b"%b %b%b HTTP/1.1\r\nhost: %b\r\n"
            b"accept: application/json\r\nuser-agent: kubeshare\r\n%b"
        ) % (method.encode(), self._path, target.encode(), self._host, self._impersonation)
        if content_type:
            head += b"content-type: %b\r\ncontent-length: %d\r\n" % (content_type.encode(), length)
        return head

    async def _exchange(self, method: str, request: bytes, limit: int) -> RawResponse:
        status, headers, stream = await self._connections.exchange(
            self.base_url, method, request, limit=limit
        )
        try:
            values = {name.lower(): value for name, value in headers}
            return RawResponse(status, values, await stream.read(limit))
        finally:
            await stream.aclose()

    async def _credentials(self, *, renew: bool) -> bytes:
        """The Authorization header line; ``b""`` if the connection itself authenticates.

        Args:
            renew: the last credentials were refused; ``b""`` then means that there are no
                others.
        """
        if self.auth is None:
            return b""
        flow = self.auth.async_auth_flow(httpx2.Request("GET", self.base_url))
        try:
            request = await anext(flow)
            if renew:
                request = await flow.asend(httpx2.Response(_UNAUTHORIZED, request=request))
        except StopAsyncIteration:
            return b""
        finally:
            await flow.aclose()
        value = request.headers.get("authorization")
        return b"authorization: %b\r\n" % value.encode() if value else b""
