"""Decodes the stream of a watch: one JSON line for each event.

A line has the type of the change and the object. ``BOOKMARK`` lines carry only a
resourceVersion, so that a quiet watch stays current. ``ERROR`` lines carry a Status and end the
stream; they are raised as exceptions.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final, Generic, TypeVar

import httpx2
import msgspec
import structlog
from msgspec import Struct

from kubeshare.kube.client.decoding import WatchLine, decoder_for
from kubeshare.kube.client.errors import Status, UnreachableError, error_of_status
from kubeshare.kube.client.json_depth import limit_depth
from kubeshare.kube.meta import Identity, Key, ObjectMeta, identity_of, key_of
from kubeshare.kube.resources import Resource

T = TypeVar("T")

log = structlog.get_logger(__name__)

BOOKMARK = "BOOKMARK"
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})

LINE_LIMIT = 16 << 20
"""Longest line in bytes: etcd refuses objects of more than a few MiB."""


class WatchEvent(Struct, Generic[T], frozen=True):
    """One event of a watch.

    ``type`` is ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``. ``object`` is None for a
    bookmark, and for an object that cannot be decoded into the resource's shape. A new watch may
    start from the resourceVersion of ``identity``.
    """

    type: str
    key: Key
    identity: Identity
    object: T | None


class _Named(Struct):
    metadata: ObjectMeta


async def read_watch(
    response: httpx2.Response, resource: Resource[T], what: str
) -> AsyncGenerator[WatchEvent[T]]:
    """The events of a watch.

    Args:
        response: the response to the request, with an unread body.
        resource: the kind.
        what: names the request in error messages.

    Raises:
        ApiError: an ERROR event, as the error that its Status means (410: ``GoneError``).
        UnreachableError: the body is not the stream of a watch.
    """
    buffer = b""
    async for chunk in response.aiter_bytes():
        *lines, buffer = (buffer + chunk).split(b"\n")
        if len(buffer) > LINE_LIMIT:
            raise UnreachableError(f"{what}: a line of more than {LINE_LIMIT} bytes", sent=True)
        for line in lines:
            if line.strip():
                yield _decode(line, resource, what)


def _decode(line: bytes, resource: Resource[T], what: str) -> WatchEvent[T]:
    try:
        read = decoder_for(resource.shape).decode_line(line)
    except msgspec.DecodeError as error:
        return _decode_other(line, resource, what, error)
    if read.type not in _CHANGES:
        return _decode_other(line, resource, what, ValueError(f"of type {read.type!r}"))
    return WatchEvent(read.type, key_of(read.object), identity_of(read.object), read.object)


def _decode_other(
    line: bytes, resource: Resource[Any], what: str, problem: Exception
) -> WatchEvent[Any]:
    """Decode a bookmark, an error, or a change to an object of another shape.

    Args:
        line: the line.
        resource: the kind.
        what: names the request in error messages.
        problem: why the line is no change to an object of the resource's shape.
    """
    try:
        envelope = msgspec.json.decode(limit_depth(line), type=WatchLine[msgspec.Raw])
        if envelope.type == "ERROR":
            raise error_of_status(msgspec.json.decode(envelope.object, type=Status), what)
        named = msgspec.json.decode(envelope.object, type=_Named)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{what}: not a watch event ({error})", sent=True) from error
    if envelope.type in _CHANGES:
        report_unreadable(envelope.object, resource, problem)
    elif envelope.type != BOOKMARK:
        raise UnreachableError(f"{what}: not a watch event ({problem})", sent=True) from problem
    return WatchEvent(envelope.type, key_of(named), identity_of(named), None)


def report_unreadable(raw: msgspec.Raw, resource: Resource[Any], error: Exception) -> Key:
    """Log an object that cannot be decoded into the resource's shape; returns its key."""
    key = msgspec.json.decode(limit_depth(bytes(raw)), type=_Named).metadata.key
    log.error("object cannot be read", resource=resource.plural, object=str(key), error=str(error))
    return key
