"""The watch stream: one JSON object a line, decoded into events.

A line names the kind of change and carries the object. ``BOOKMARK`` lines carry
only a resourceVersion, so that a quiet watch does not grow old; ``ERROR`` lines
carry a Status and end the stream: they are raised.
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
"""Bytes a line may have: etcd refuses objects of more than a few MiB."""


class WatchEvent(Struct, Generic[T], frozen=True):
    """One change.

    ``type`` is ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``; ``object`` is None
    for a bookmark, and where the object does not have the form that was asked for.
    A watch may go on from the resourceVersion of ``identity``.
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
    """The events of a watch's answer.

    Args:
        response: an answer whose body has not been read.
        resource: what is watched.
        what: the request, for messages.

    Raises:
        ApiError: an ERROR event, as the error it stands for (410: ``GoneError``).
        UnreachableError: what came is not a watch.
    """
    buffer = b""
    async for chunk in response.aiter_bytes():
        *lines, buffer = (buffer + chunk).split(b"\n")
        if len(buffer) > LINE_LIMIT:
            raise UnreachableError(f"{what}: a line of more than {LINE_LIMIT} bytes", sent=True)
        for line in lines:
            if line.strip():
                yield _event(line, resource, what)


def _event(line: bytes, resource: Resource[T], what: str) -> WatchEvent[T]:
    try:
        read = decoder_for(resource.shape).read_line(line)
    except msgspec.DecodeError:
        return _odd(line, resource, what)
    if read.type not in _CHANGES:
        return _odd(line, resource, what)
    return WatchEvent(read.type, key_of(read.object), identity_of(read.object), read.object)


def _odd(line: bytes, resource: Resource[Any], what: str) -> WatchEvent[Any]:
    """A line that tells no change, or one to an object of another form."""
    try:
        envelope = msgspec.json.decode(limit_depth(line), type=WatchLine[msgspec.Raw])
        if envelope.type == "ERROR":
            raise error_of_status(msgspec.json.decode(envelope.object, type=Status), what)
        named = msgspec.json.decode(envelope.object, type=_Named)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{what}: not a watch event ({error})", sent=True) from error
    if envelope.type == BOOKMARK:
        return WatchEvent(BOOKMARK, key_of(named), identity_of(named), None)
    try:
        changed = decoder_for(resource.shape).read(envelope.object)
    except msgspec.ValidationError as error:
        report_unreadable(envelope.object, resource, error)
        changed = None
    return WatchEvent(envelope.type, key_of(named), identity_of(named), changed)


def report_unreadable(raw: msgspec.Raw, resource: Resource[Any], error: Exception) -> Key:
    """Log an object that does not have the form its reader asks for; returns its key."""
    key = msgspec.json.decode(limit_depth(bytes(raw)), type=_Named).metadata.key
    log.error("object cannot be read", resource=resource.plural, object=str(key), error=str(error))
    return key
