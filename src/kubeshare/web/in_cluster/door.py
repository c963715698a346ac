"""Leads each request in the cluster to its viewer's session."""

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kubeshare.core.errors import InvalidValueError
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import ApiError, ForbiddenError, UnauthorizedError
from kubeshare.web.access import PROTECTED, with_headers, wrong_host
from kubeshare.web.application import file_routes, routed
from kubeshare.web.in_cluster.session import Session, SessionEndedError
from kubeshare.web.in_cluster.sessions import Sessions, TooManyViewersError
from kubeshare.web.in_cluster.viewer import NoTokenError, read_viewer

_OWN_SITE: Final = frozenset({"", "same-origin", "none"})
"""``Sec-Fetch-Site`` of the page's own requests, and of programs that send none."""

_STATUS: Final[dict[type[Exception], int]] = {
    UnauthorizedError: 401,
    InvalidValueError: 400,
    ForbiddenError: 403,
    SessionEndedError: 503,
    TooManyViewersError: 503,
    NotInstalledError: 503,
    TimeoutError: 504,
    ApiError: 502,
}


class Door:
    """Lets requests for the names of this page in, and leads each to its viewer's session.

    The page itself is no secret; everything below ``/api/`` needs a token, which comes from the
    page or from an authenticating proxy. A proxy may add it because of a cookie, also to requests
    that pages of other sites cause, so those are refused.

    Args:
        sessions: of all viewers.
        hosts: names in the header ``Host``, without port.
    """

    def __init__(self, sessions: Sessions, hosts: Iterable[str]) -> None:
        self._sessions = sessions
        self._hosts = frozenset(host.lower() for host in hosts)
        self._files = routed(*file_routes())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        send = with_headers(send)
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope, headers):
            await refusal(scope, receive, send)
        elif not scope["path"].startswith(PROTECTED):
            await self._files(scope, receive, send)
        else:
            await self._answer(headers, scope, receive, send)

    async def _answer(self, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        session: Session | None = None
        app: ASGIApp
        try:
            try:
                session = await self._sessions.enter(read_viewer(headers))
                app = await session.application()
            except tuple(_STATUS) as error:
                app = _refused(error)
            await app(scope, receive, send)
        finally:
            if session is not None:
                session.leave()

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        if refusal := wrong_host(headers, self._hosts, ", ".join(sorted(self._hosts))):
            return refusal
        if scope["path"].startswith(PROTECTED):
            site = headers.get("sec-fetch-site", "").lower()
            if site not in _OWN_SITE:
                return JSONResponse({"error": "a page of another site sent this request"}, 403)
        return None


def _refused(error: Exception) -> ASGIApp:
    """An error in words; ``signIn`` asks for a token."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    fields = {"error": str(error) or "the API server takes too long: try again in a moment"}
    if status != 401:
        return JSONResponse(fields, status)
    words = "this token is unknown or has expired: sign in with another one"
    signs_in = (fields if isinstance(error, NoTokenError) else {"error": words}) | {"signIn": True}
    return JSONResponse(signs_in, status, {"www-authenticate": "Bearer"})
