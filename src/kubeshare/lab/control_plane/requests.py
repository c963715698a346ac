"""Sends JSON requests to an API server over connections that are kept.

A TLS handshake costs more than most requests; who polls should pay it once.
"""

import http.client
import json
import select
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kubeshare.lab.errors import LabError

_TIMEOUT_SECONDS: Final = 30.0
_FIRST_ERROR: Final = 400


class Requests:
    """Requests as one user of an API server, each thread's over a connection of its own.

    Args:
        url: of the API server.
        authority: the certificate that signed the server's.
        certificate: the user's.
        key: the user's.
    """

    def __init__(self, url: str, authority: Path, certificate: Path, key: Path) -> None:
        self._url = url
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(certificate, key)
        self._kept = threading.local()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Any:
        """Send a request and return the decoded answer.

        Raises:
            LabError: the API server cannot be reached or refuses; the message has its reason.
        """
        content = None if body is None else json.dumps(body).encode()
        sent = [("Content-Type", content_type), *headers]
        status, reason, answer = self._exchange(method, path, content, sent)
        if status >= _FIRST_ERROR:
            text = answer.decode(errors="replace")
            raise LabError(
                f"{method} {self._url}{path}: HTTP Error {status}: {reason}: {text}", exit_code=1
            )
        return json.loads(answer)

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: Sequence[tuple[str, str]]
    ) -> tuple[int, str, bytes]:
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        # The server may have closed a kept connection. A read is sent again over a new one; of a
        # write it is not known whether the server got it, so it is not sent where that shows.
        if kept is not None and method == "GET":
            try:
                return self._over(kept, method, path, content, headers)
            except (http.client.HTTPException, OSError):
                self._drop()
        try:
            connection = kept if kept is not None and _is_quiet(kept) else self._connect()
            return self._over(connection, method, path, content, headers)
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise LabError(f"{method} {self._url}{path}: {error}") from error

    def _connect(self) -> http.client.HTTPSConnection:
        self._drop()
        where = urlsplit(self._url)
        self._kept.connection = http.client.HTTPSConnection(
            str(where.hostname), where.port, timeout=_TIMEOUT_SECONDS, context=self._context
        )
        made: http.client.HTTPSConnection = self._kept.connection
        return made

    def _drop(self) -> None:
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            kept.close()
            self._kept.connection = None

    @staticmethod
    def _over(
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        content: bytes | None,
        headers: Sequence[tuple[str, str]],
    ) -> tuple[int, str, bytes]:
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value)
        if content is not None:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        answer = connection.getresponse()
        return answer.status, answer.reason, answer.read()


def _is_quiet(kept: http.client.HTTPSConnection) -> bool:
    """Whether a connection is open and has nothing to read: the end of it would be something."""
    if kept.sock is None:
        return False
    readable = select.poll()
    readable.register(kept.sock, select.POLLIN)
    return not readable.poll(0)
