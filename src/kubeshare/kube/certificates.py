"""The certificate of a server, reread when its files change."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

REREAD_SECONDS: Final = 30.0
"""Seconds after which a renewed certificate is in use at the latest."""


class AccessError(Exception):
    """A file of certificates, of a key or of a token cannot be used."""


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
            if (file_version(self._certificate), file_version(self._key)) != self._versions:
                self._versions = self._load()
        except AccessError as error:
            log.warning("the certificate stays as it was", error=str(error))

    def _load(self) -> tuple[object, object]:
        versions = file_version(self._certificate), file_version(self._key)
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            raise AccessError(f"{self._certificate}, {self._key}: {error}") from error
        return versions


def file_version(path: Path) -> object:
    """What changes with the content of a file.

    Raises:
        AccessError: it cannot be read.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size
