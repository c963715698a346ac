"""Checks the token and the host of requests, and adds security headers."""

import secrets
from collections.abc import Container, Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of this machine. A page of another site that lets its name point here has its own."""

PROTECTED: Final = "/api/"

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """Passes on the requests of those who know the token, and adds headers to all responses.

    The page itself is no secret; everything below ``/api/`` needs the token. It is in the URL
    after ``#``, which browsers do not send, and comes as ``Authorization: Bearer``: another site
    cannot make a browser add that, as it could with a cookie.

    Args:
        app: answers the requests that are let through.
        token: the secret.
        hosts: names in the header ``Host``, without port.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str] = HOSTS) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        app = self._refusal(scope) or self._app
        await app(scope, receive, with_headers(send))

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if refusal := wrong_host(headers, self._hosts, "http://127.0.0.1"):
            return refusal
        if scope["path"].startswith(PROTECTED):
            given = headers.get("authorization", "").encode()
            if not secrets.compare_digest(given, self._expected):
                words = "open the whole URL that `kubeshare web` printed: its token is missing"
                return JSONResponse({"error": words}, 401, {"www-authenticate": "Bearer"})
        return None


def with_headers(send: Send) -> Send:
    """Sends responses with the security headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return send_with_headers


def wrong_host(headers: Headers, hosts: Container[str], place: str) -> ASGIApp | None:
    """Refuses a request for another host than ``hosts``; ``place`` is where the page is."""
    host = headers.get("host", "")
    if _without_port(host).lower() in hosts:
        return None
    return JSONResponse({"error": f"this page is at {place}, not at {host[:100]!r}"}, 421)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
