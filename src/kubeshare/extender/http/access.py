"""Certificates and the token of a server, reread when their files change."""

import asyncio
import base64
import binascii
import hmac
import ssl
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MIN_TOKEN: Final = 16
"""The least bytes of a token."""
REREAD_SECONDS: Final = 30.0
"""Seconds after which a renewed certificate is in use at the latest."""


class AccessError(Exception):
    """A file of certificates, of a key or of a token cannot be used."""


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
        self._version = _version(path)
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
            version = _version(self._path)
            if version != self._version:
                self._version = version
                self._token = _read_token(self._path)
        except AccessError as error:
            log.warning("the token stays as it was", error=str(error))
        return self._token


class Certificates:
    """The TLS context of a server.

    Args:
        certificate: its chain, in PEM.
        key: its private key, in PEM.
        client_ca: the authorities of clients, which then need a certificate; None for any client.

    Attributes:
        context: for new connections.

    Raises:
        AccessError: a file cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certificate = certificate
        self._key = key
        self._versions = self._load()
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except OSError as error:  # ssl.SSLError is one
                raise AccessError(f"{client_ca}: {error}") from error
            self.context.verify_mode = ssl.CERT_REQUIRED

    async def run(self) -> None:
        """Load the files again when they have changed, until cancelled."""
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            self.reload()

    def reload(self) -> None:
        """Load the files again if they have changed; unusable ones leave the former in force."""
        try:
            if (_version(self._certificate), _version(self._key)) != self._versions:
                self._versions = self._load()
        except AccessError as error:
            log.warning("the certificate stays as it was", error=str(error))

    def _load(self) -> tuple[object, object]:
        versions = _version(self._certificate), _version(self._key)
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            raise AccessError(f"{self._certificate}, {self._key}: {error}") from error
        return versions


def _read_token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    if len(token) < MIN_TOKEN:
        raise AccessError(f"{path}: a token has at least {MIN_TOKEN} characters")
    return token


def _version(path: Path) -> object:
    """What changes with the content of a file."""
    try:
        found = path.stat()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size
