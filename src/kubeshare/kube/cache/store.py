"""An indexed local copy of one kind of objects.

Only the reflector writes. Readers get immutable snapshots that are free until the next change
(copy on write), so a decision sees one consistent state for as long as it takes.

The copy lags behind the API server. That needs no live reads: a decision made from old state
is written conditionally and fails.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from sys import intern
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from kubeshare.kube.cache.key_index import KeyIndex
from kubeshare.kube.cache.store_codec import ObjectCodec
from kubeshare.kube.meta import Key, identity_of, key_of

T = TypeVar("T")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_UID: Final = "the uid"


class Change(Struct, Generic[T], frozen=True):
    """One change of the store: ``type`` and the new state (``DELETED``: the last known state).

    ``old`` is the state that the store had before. ``initial`` marks the objects of the first
    list: they are the state at the start, not news.
    """

    type: str
    object: T
    old: T | None = None
    initial: bool = False

    @property
    def key(self) -> Key:
        """Namespace and name of the object."""
        return key_of(self.object)


IndexFunction: TypeAlias = Callable[[T], Iterable[str]]


class EncodedObject(NamedTuple):
    """An object in the form in which the store holds it."""

    key: Key
    value: Any


class Store(Generic[T]):
    """The objects of one kind, by namespace and name and by any number of indexes.

    Args:
        indexes: index name -> pure function that returns the values under which an object is
            found.
        encode_as: the type that objects are decoded into if the store holds them as bytes
            (:mod:`kubeshare.kube.cache.store_codec`); None holds them as they are.
    """

    def __init__(
        self,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        *,
        encode_as: type[T] | None = None,
    ) -> None:
        self._codec = ObjectCodec(encode_as)
        self._objects: dict[Key, Any] = {}  # encoded
        self._shared = False  # a snapshot refers to `_objects`: copy before the next write
        self._functions = dict(indexes or {})
        self._indexes = {name: KeyIndex() for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of that name, or None."""
        return self.by_key(Key(namespace, name))

    def by_key(self, key: Key) -> T | None:
        """The object of that namespace and name, or None."""
        encoded = self._objects.get(key)
        return None if encoded is None else self._codec.decode(encoded)

    def by_uid(self, uid: str) -> T | None:
        """The object with that uid, or None; a later object of the same name has another uid."""
        if _UID not in self._functions:
            self.add_index(_UID, lambda obj: [identity_of(obj).uid])
        return next(iter(self.by_index(_UID, uid)), None)

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that an index lists under a value.

        Raises:
            KeyError: there is no such index.
        """
        decode = self._codec.decode
        return tuple(decode(self._objects[key]) for key in self.keys_by_index(index, value))

    def keys_by_index(self, index: str, value: str) -> tuple[Key, ...]:
        """The keys of the objects that an index lists under a value.

        Raises:
            KeyError: there is no such index.
        """
        return self._indexes[index].keys(value)

    def index_values(self, index: str) -> tuple[str, ...]:
        """The values under which an index lists any object.

        Raises:
            KeyError: there is no such index.
        """
        return self._indexes[index].values()

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index over the present and all later objects."""
        self._functions[name] = function
        index = self._indexes[name] = KeyIndex()
        for key, encoded in self._objects.items():
            index.add(key, function(self._codec.decode(encoded)))

    def snapshot(self) -> Mapping[Key, T]:
        """All objects as they are now; later changes do not affect the snapshot."""
        self._shared = True
        return self._codec.view(self._objects)

    def encode(self, obj: T) -> EncodedObject:
        """The stored form of an object, for :meth:`iter_replace`."""
        key = key_of(obj)
        # Many objects have the same namespace, and each was decoded with its own text.
        return EncodedObject(Key(intern(key.namespace), key.name), self._codec.encode(obj))

    def put(self, obj: T, *, initial: bool = False) -> list[Change[T]]:
        """Store an object and return the changes.

        There are none if the stored resourceVersion is the same, and a deletion followed by an
        addition if the name now belongs to another object.
        """
        return self._put(obj, self.encode(obj), initial=initial)

    def remove(self, key: Key, *, uid: str = "", last: T | None = None) -> list[Change[T]]:
        """Remove an object.

        Args:
            key: namespace and name of the object.
            uid: the uid of the deleted object; ``""`` removes any object of that name.
            last: the last state of the object, if known.

        Returns:
            The deletion; empty if the store has no object of that name, or one with another
            uid.
        """
        old = self.by_key(key)
        if old is None or (uid and uid != identity_of(old).uid):
            return []
        self._copy_if_shared()
        del self._objects[key]
        for name, function in self._functions.items():
            self._indexes[name].remove(key, function(old))
        return [Change(DELETED, old if last is None else last, old)]

    def replace(self, objects: Iterable[T]) -> list[Change[T]]:
        """Make the store equal to a complete list and return the changes."""
        encoded = [self.encode(obj) for obj in objects]
        return [change for changes in self.iter_replace(encoded) for change in changes]

    def iter_replace(
        self, listed: Iterable[EncodedObject], *, keep: Container[Key] = (), initial: bool = False
    ) -> Iterator[list[Change[T]]]:
        """Make the store equal to a complete list; yields the changes of one object after another.

        There are none in the steps in which it only compares: to look at all keys of a large list
        at once takes too long.

        Args:
            listed: all objects, as :meth:`encode` returns them.
            keep: keys to leave unchanged although they are not listed.
            initial: whether this is the first list.
        """
        wanted: dict[Key, Any] = {}
        for key, encoded in listed:
            wanted[key] = encoded
            yield []
        for key in tuple(self._objects):
            yield [] if key in wanted or key in keep else self.remove(key)
        for key, encoded in wanted.items():
            obj = self._codec.decode(encoded)
            yield self._put(obj, EncodedObject(key, encoded), initial=initial)

    def _put(self, obj: T, encoded: EncodedObject, *, initial: bool) -> list[Change[T]]:
        key = encoded.key
        old = self.by_key(key)
        if old is None:
            self._write(encoded, obj, None)
            return [Change(ADDED, obj, initial=initial)]
        known, now = identity_of(old), identity_of(obj)
        if known.uid != now.uid:
            gone = self.remove(key)
            self._write(encoded, obj, None)
            return [*gone, Change(ADDED, obj, initial=initial)]
        if known.resource_version == now.resource_version:
            return []
        self._write(encoded, obj, old)
        return [Change(MODIFIED, obj, old)]

    def _write(self, encoded: EncodedObject, obj: T, old: T | None) -> None:
        self._copy_if_shared()
        key, self._objects[key] = encoded
        for name, function in self._functions.items():
            values = tuple(function(obj))
            before = () if old is None else tuple(function(old))
            if values != before:
                self._indexes[name].remove(key, before)
                self._indexes[name].add(key, values)

    def _copy_if_shared(self) -> None:
        if self._shared:
            self._objects = dict(self._objects)
            self._shared = False
