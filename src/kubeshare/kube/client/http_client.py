"""An HTTP client with a short way for requests whose answers are read whole.

All but watches are such requests, eight a SharePod, and what the library does for each of them
(merging of addresses, headers, parameters and cookies, redirects, decoding of what was
compressed) costs more than the request itself. Watches and proxies go through the library.
"""

from typing import Any, Final

import httpx2
from msgspec import Struct

from kubeshare.kube.client.connection_pool import ConnectionPool

_UNAUTHORIZED: Final = 401


class RawResponse(Struct, frozen=True):
    """An answer that has been read whole: its status, headers by name in small letters, body."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class DirectClient(httpx2.AsyncClient):
    """The library's client, and a short way for requests whose answers are read whole.

    Args:
        connections: to the server of ``base_url``.
        parameters: of the library's client.
    """

    def __init__(self, connections: ConnectionPool, **parameters: Any) -> None:
        super().__init__(transport=connections, **parameters)
        self._connections = connections
        self._path = self.base_url.raw_path.rstrip(b"/")
        self._host = self.base_url.netloc
        self._authorization: bytes | None = None  # a header's line; None before it is known

    async def ask(
        self, method: str, target: str, content_type: str = "", body: bytes = b""
    ) -> RawResponse:
        """The answer to a request, asked again with new credentials where these are refused.

        Args:
            method: its method.
            target: path and query, below the path of the server's address.
            content_type: of the body; ``""`` where there is none.
            body: what is sent.

        Raises:
            httpx2.ConnectError: there is nobody, or not the right one.
            httpx2.ReadError: the connection broke after the request was begun.
        """
        if self._authorization is None:
            self._authorization = await self._credentials(renew=False)
        head = self._head(method, target, content_type, len(body))
        answer = await self._exchange(method, b"%b%b\r\n%b" % (head, self._authorization, body))
        if answer.status == _UNAUTHORIZED:
            renewed = await self._credentials(renew=True)
            if renewed:
                self._authorization = renewed
                answer = await self._exchange(method, b"%b%b\r\n%b" % (head, renewed, body))
        return answer

    def _head(self, method: str, target: str, content_type: str, length: int) -> bytes:
        """All lines before the body but those that say who asks."""
        head = (
            b"%b %b%b HTTP/1.1\r\nhost: %b\r\naccept: application/json\r\nuser-agent: kubeshare\r\n"
        ) % (method.encode(), self._path, target.encode(), self._host)
        if content_type:
            head += b"content-type: %b\r\ncontent-length: %d\r\n" % (content_type.encode(), length)
        return head

    async def _exchange(self, method: str, request: bytes) -> RawResponse:
        status, headers, stream = await self._connections.exchange(self.base_url, method, request)
        try:
            known = {name.lower(): value for name, value in headers}
            return RawResponse(status, known, await stream.read())
        finally:
            await stream.aclose()

    async def _credentials(self, *, renew: bool) -> bytes:
        """The line that says who asks; ``b""`` where the connection itself says it.

        Args:
            renew: the ones that were got before have been refused; then ``b""`` means that
                there are no others.
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
        given = request.headers.get("authorization")
        return b"authorization: %b\r\n" % given.encode() if given else b""
