"""Objects kept as bytes, of which each reader makes its own.

A SharePod is a tree of some eighty Python objects, many times the size of its text: ten
thousand of them are most of what a controller needs of memory, and what its garbage collector
goes through. Packed, each is one string of bytes that costs some microseconds to read, and a
reconcile reads one or two. A kind whose objects are gone through again and again is better
kept as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

K = TypeVar("K")
T = TypeVar("T")


class Packing(Generic[T]):
    """How a store keeps its objects.

    Args:
        shape: as what each is packed and made again, ``dict`` for raw ones; None for objects
            that are kept as they came.

    Attributes:
        pack: makes of an object what is kept.
        unpack: makes the object again.
    """

    def __init__(self, shape: type[T] | None) -> None:
        self.pack: Callable[[T], Any] = _itself
        self.unpack: Callable[[Any], T] = _itself
        if shape is not None:
            self.pack = msgspec.msgpack.Encoder().encode
            self.unpack = msgspec.msgpack.Decoder(shape).decode
        self._packs = shape is not None

    def view(self, kept: Mapping[K, Any]) -> Mapping[K, T]:
        """What is kept, to be read as the objects that it stands for."""
        return Unpacked(kept, self.unpack) if self._packs else MappingProxyType(kept)


class Unpacked(Mapping[K, T]):
    """A mapping whose values are unpacked as they are read.

    Args:
        kept: what is kept, by key.
        unpack: makes an object of it.
    """

    def __init__(self, kept: Mapping[K, Any], unpack: Callable[[Any], T]) -> None:
        self._kept = kept
        self._unpack = unpack

    def __getitem__(self, key: K) -> T:
        return self._unpack(self._kept[key])

    def __iter__(self) -> Iterator[K]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept


def _itself(obj: Any) -> Any:
    return obj
