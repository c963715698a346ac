"""From JSON to the form that a reader asks for, in one pass.

Of raw objects the API server's notes of who wrote which field are left out, two thirds of
them, before they cost anything; and of all what is nested too deeply to be read.
"""

from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from kubeshare.kube.client.json_depth import drop_deep_values, limit_depth

T = TypeVar("T")


class _Metadata(TypedDict, total=False):
    """All of ``metadata`` but ``managedFields``."""

    name: str
    generateName: Any
    namespace: str
    selfLink: Any
    uid: str
    resourceVersion: str
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


class _Object(TypedDict, total=False):
    """All of an object of a kind that has no other fields."""

    apiVersion: str
    kind: str
    metadata: _Metadata
    spec: Any
    status: Any


SPEC_AND_STATUS: Final = cast("type[dict[str, Any]]", _Object)
"""The shape of raw objects of such a kind, which are read in half the time."""


class WatchLine(Struct, Generic[T]):
    """One line of a watch, of which the object has the form that is asked for."""

    type: str
    object: T


class ObjectDecoder(Generic[T]):
    """Decodes the objects of a shape.

    Args:
        shape: ``dict`` for raw objects, or a narrow Struct.
    """

    def __init__(self, shape: type[T]) -> None:
        self._raw = shape is dict
        # Others read what they know and pass over the rest, however deep, or say that they cannot.
        self._keeps_all = self._raw or shape is SPEC_AND_STATUS
        form: Any = dict[str, Raw] if self._raw else shape
        self._objects = msgspec.json.Decoder(form)
        self._lines: msgspec.json.Decoder[WatchLine[Any]] = msgspec.json.Decoder(WatchLine[form])

    def read(self, body: bytes | Raw) -> T:
        """An object.

        Raises:
            msgspec.DecodeError: it is no JSON, or has another form.
        """
        return self._lean(self._decoded(self._objects, body))

    def read_line(self, line: bytes) -> WatchLine[T]:
        """A line of a watch.

        Raises:
            msgspec.DecodeError: it is none, or its object has another form.
        """
        found = self._decoded(self._lines, line)
        return WatchLine(found.type, self._lean(found.object))

    def _decoded(self, decoder: msgspec.json.Decoder[Any], text: bytes | Raw) -> Any:
        if self._keeps_all:
            return decoder.decode(limit_depth(bytes(text)))
        try:
            return decoder.decode(text)
        except RecursionError:
            return decoder.decode(drop_deep_values(bytes(text)))

    def _lean(self, decoded: Any) -> T:
        if not self._raw:
            return cast("T", decoded)
        lean = {
            name: msgspec.json.decode(part, type=_Metadata if name == "metadata" else Any)
            for name, part in decoded.items()
        }
        return cast("T", lean)


_READERS: dict[Any, ObjectDecoder[Any]] = {}


def decoder_for(shape: type[T]) -> ObjectDecoder[T]:
    """The reader of a shape, of which a program has a dozen."""
    reader = _READERS.get(shape)
    if reader is None:
        reader = _READERS[shape] = ObjectDecoder(shape)
    return reader
