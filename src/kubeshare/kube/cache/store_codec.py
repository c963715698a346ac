"""Encodes stored objects as bytes to save memory.

A SharePod is a tree of about eighty Python objects, many times the size of its JSON. Ten
thousand of them are most of a controller's memory and most of what its garbage collector
visits. Encoded as MessagePack, each object is one byte string that takes a few microseconds
to decode, and a reconcile reads one or two. Kinds whose objects are iterated all the time
are better stored as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

K = TypeVar("K")
T = TypeVar("T")


class ObjectCodec(Generic[T]):
    """Converts between an object and its stored form.

    Args:
        shape: the type that objects are decoded into (``dict`` for raw objects); None stores
            each object as it is.

    Attributes:
        encode: returns the stored form of an object.
        decode: returns the object of a stored form.
    """

    def __init__(self, shape: type[T] | None) -> None:
        self.encode: Callable[[T], Any] = _identity
        self.decode: Callable[[Any], T] = _identity
        if shape is not None:
            self.encode = msgspec.msgpack.Encoder().encode
            self.decode = msgspec.msgpack.Decoder(shape).decode
        self._encodes = shape is not None

    def view(self, encoded: Mapping[K, Any]) -> Mapping[K, T]:
        """A read-only mapping of the decoded objects."""
        if self._encodes:
            return DecodingView(encoded, self.decode)
        return MappingProxyType(encoded)


class DecodingView(Mapping[K, T]):
    """A mapping that decodes a value each time it is read."""

    def __init__(self, encoded: Mapping[K, Any], decode: Callable[[Any], T]) -> None:
        self._encoded = encoded
        self._decode = decode

    def __getitem__(self, key: K) -> T:
        return self._decode(self._encoded[key])

    def __iter__(self) -> Iterator[K]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __contains__(self, key: object) -> bool:
        return key in self._encoded


def _identity(obj: Any) -> Any:
    return obj
