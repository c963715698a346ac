"""Decodes JSON into the caller's type in one pass.

Raw objects are decoded without ``managedFields``, which are two thirds of their size, and all
objects without values that are nested too deeply to be read.
"""

from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from kubeshare.kube.client.json_depth import drop_deep_values, limit_depth

T = TypeVar("T")


class _Metadata(TypedDict, total=False):
    """All fields of ``metadata`` but ``managedFields``."""

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
    """All fields of the kinds that have a spec and a status."""

    apiVersion: str
    kind: str
    metadata: _Metadata
    spec: Any
    status: Any


SPEC_AND_STATUS: Final = cast("type[dict[str, Any]]", _Object)
"""The shape of raw objects of such kinds: decoding takes half the time of ``dict``."""


class WatchLine(Struct, Generic[T]):
    """One line of a watch with a decoded object."""

    type: str
    object: T


class ObjectDecoder(Generic[T]):
    """Decodes objects into a shape: ``dict`` for raw objects, or a narrow Struct."""

    def __init__(self, shape: type[T]) -> None:
        self._raw = shape is dict
        # Other shapes skip unknown fields, however deep, or raise RecursionError.
        self._keeps_all = self._raw or shape is SPEC_AND_STATUS
        form: Any = dict[str, Raw] if self._raw else shape
        self._objects = msgspec.json.Decoder(form)
        self._lines: msgspec.json.Decoder[WatchLine[Any]] = msgspec.json.Decoder(WatchLine[form])

    def decode(self, body: bytes | Raw) -> T:
        """The object that a body holds.

        Raises:
            msgspec.DecodeError: the body is not JSON, or has another shape.
        """
        return self._without_managed_fields(self._decode(self._objects, body))

    def decode_line(self, line: bytes) -> WatchLine[T]:
        """A line of a watch.

        Raises:
            msgspec.DecodeError: the line or its object has another shape.
        """
        found = self._decode(self._lines, line)
        return WatchLine(found.type, self._without_managed_fields(found.object))

    def _decode(self, decoder: msgspec.json.Decoder[Any], text: bytes | Raw) -> Any:
        if self._keeps_all:
            return decoder.decode(limit_depth(bytes(text)))
        try:
            return decoder.decode(text)
        except RecursionError:
            return decoder.decode(drop_deep_values(bytes(text)))

    def _without_managed_fields(self, decoded: Any) -> T:
        if not self._raw:
            return cast("T", decoded)
        decoded_fields = {
            name: msgspec.json.decode(part, type=_Metadata if name == "metadata" else Any)
            for name, part in decoded.items()
        }
        return cast("T", decoded_fields)


_DECODERS: dict[Any, ObjectDecoder[Any]] = {}


def decoder_for(shape: type[T]) -> ObjectDecoder[T]:
    """The decoder of a shape; a program uses about a dozen."""
    decoder = _DECODERS.get(shape)
    if decoder is None:
        decoder = _DECODERS[shape] = ObjectDecoder(shape)
    return decoder
