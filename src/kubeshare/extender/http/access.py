"""The token of a server, reread when its file changes."""

import base64
import binascii
import hmac
from pathlib import Path
from typing import Final

import structlog

from kubeshare.kube.certificates import AccessError, file_version

log = structlog.get_logger(__name__)

MIN_TOKEN: Final = 16
"""The least bytes of a token."""


class TokenFile:
    """A secret that clients send, in a file.

    kube-scheduler cannot send a bearer token to an extender, but sends the user and password of
    ``urlPrefix: https://user:TOKEN@host``; so the password of any user is accepted as well.

    Args:
        path: the file; white space around the token is ignored.

    Raises:
        AccessError: the file cannot be read, or the token is too short.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = file_version(path)
        self._token = _read_token(path)

    def accepts(self, authorization: bytes | None) -> bool:
        """Whether an ``Authorization`` header has the token."""
        scheme, _, value = (authorization or b"").partition(b" ")
        value = value.strip()
        if scheme.lower() == b"basic":
            try:
                value = base64.b64decode(value, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(value, self._current())

    def _current(self) -> bytes:
        """The token; a renewed file that cannot be used leaves the former token in force."""
        try:
            version = file_version(self._path)
            if version != self._version:
                self._version = version
                self._token = _read_token(self._path)
        except AccessError as error:
            log.warning("the token stays as it was", error=str(error))
        return self._token


def _read_token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    if len(token) < MIN_TOKEN:
        raise AccessError(f"{path}: a token has at least {MIN_TOKEN} characters")
    return token
