"""The local copy of a kind of objects: by name, by uid, and by whatever an index asks.

Only the reflector writes. Readers get immutable snapshots that cost nothing until
the next change (copy on write), so that a decision may look at one consistent
picture for as long as it takes.

The copy lags behind the API server. That is no defect to be worked around by
reading live: a decision made from an old picture is written conditionally, and
fails.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from kubeshare.kube.cache.store_codec import Packing
from kubeshare.kube.meta import Key, identity_of, key_of

T = TypeVar("T")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_UID: Final = "the uid"


class Change(Struct, Generic[T], frozen=True):
    """What became of one object: ``type`` and the object after (``DELETED``: as last seen).

    ``old`` is what the store had before a ``MODIFIED``. ``initial`` marks the objects of
    the first list, which are no news but the state at the start.
    """

    type: str
    object: T
    old: T | None = None
    initial: bool = False

    @property
    def key(self) -> Key:
        """Namespace and name of the object."""
        return key_of(self.object)


IndexFunction = Callable[[T], Iterable[str]]


class Kept(NamedTuple):
    """An object as a store keeps it, and its name."""

    key: Key
    packed: Any


class Store(Generic[T]):
    """Objects of one kind.

    Args:
        indexes: name of an index -> function that says under which values an object is
            found. The functions must be pure.
        packed: as what the objects are packed and made again
            (:mod:`kubeshare.kube.cache.store_codec`);
            None to keep them as they come.
    """

    def __init__(
        self,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        *,
        packed: type[T] | None = None,
    ) -> None:
        self._packing = Packing(packed)
        self._objects: dict[Key, Any] = {}  # packed
        self._shared = False  # a snapshot holds `_objects`: copy before the next write
        self._functions = dict(indexes or {})
        # index -> value -> keys, in the order in which they came (a dict as an ordered set)
        self._indexes: dict[str, defaultdict[str, dict[Key, None]]] = {
            name: defaultdict(dict) for name in self._functions
        }

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of that name, or None."""
        return self.by_key(Key(namespace, name))

    def by_key(self, key: Key) -> T | None:
        """The object of that namespace and name, or None."""
        kept = self._objects.get(key)
        return None if kept is None else self._packing.unpack(kept)

    def by_uid(self, uid: str) -> T | None:
        """The object with that uid, or None; a namesake made later has another uid."""
        if _UID not in self._functions:
            self.add_index(_UID, lambda obj: [identity_of(obj).uid])
        return next(iter(self.by_index(_UID, uid)), None)

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that an index files under a value.

        Raises:
            KeyError: there is no such index.
        """
        unpack = self._packing.unpack
        return tuple(unpack(self._objects[key]) for key in self.keys_by_index(index, value))

    def keys_by_index(self, index: str, value: str) -> tuple[Key, ...]:
        """The names of the objects that an index files under a value.

        Raises:
            KeyError: there is no such index.
        """
        return tuple(self._indexes[index].get(value, ()))

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index; objects that are there already are filed too."""
        self._functions[name] = function
        self._indexes[name] = defaultdict(dict)
        for key, kept in self._objects.items():
            self._file(name, key, function(self._packing.unpack(kept)))

    def snapshot(self) -> Mapping[Key, T]:
        """All objects as they are now; later changes do not show in it."""
        self._shared = True
        return self._packing.view(self._objects)

    def kept(self, obj: T) -> Kept:
        """An object as it would be kept, for :meth:`replacing`."""
        return Kept(key_of(obj), self._packing.pack(obj))

    def put(self, obj: T, *, initial: bool = False) -> list[Change[T]]:
        """Store an object and tell what that changes.

        Nothing when the resourceVersion is the one that is stored already; a deletion
        and an addition when the name now belongs to another object.
        """
        return self._put(obj, self.kept(obj), initial=initial)

    def remove(self, key: Key, *, uid: str = "", last: T | None = None) -> list[Change[T]]:
        """Forget an object.

        Args:
            key: its namespace and name.
            uid: of the object that is gone; ``""`` for whoever has the name.
            last: its last state, where it is known.

        Returns:
            The deletion, or nothing when the store has no object of that name, or only
            a namesake with another uid.
        """
        old = self.by_key(key)
        if old is None or (uid and uid != identity_of(old).uid):
            return []
        self._own()
        del self._objects[key]
        for name, function in self._functions.items():
            self._unfile(name, key, function(old))
        return [Change(DELETED, old if last is None else last, old)]

    def replace(self, objects: Iterable[T]) -> list[Change[T]]:
        """Make the store equal to a complete list, and tell what that changes."""
        return list(self.replacing([self.kept(obj) for obj in objects]))

    def replacing(
        self, listed: Iterable[Kept], *, keep: Container[Key] = (), initial: bool = False
    ) -> Iterator[Change[T]]:
        """Make the store equal to a complete list; each change is made as it is asked for.

        Args:
            listed: all objects there are, as :meth:`kept` gives them.
            keep: keys that stay as they are though they are not listed.
            initial: whether this is the first list.
        """
        wanted = dict(listed)
        for key in [key for key in self._objects if key not in wanted and key not in keep]:
            yield from self.remove(key)
        for key, packed in wanted.items():
            obj = self._packing.unpack(packed)
            yield from self._put(obj, Kept(key, packed), initial=initial)

    def _put(self, obj: T, kept: Kept, *, initial: bool) -> list[Change[T]]:
        key = kept.key
        old = self.by_key(key)
        if old is None:
            self._write(kept, obj, None)
            return [Change(ADDED, obj, initial=initial)]
        known, now = identity_of(old), identity_of(obj)
        if known.uid != now.uid:
            gone = self.remove(key)
            self._write(kept, obj, None)
            return [*gone, Change(ADDED, obj, initial=initial)]
        if known.resource_version == now.resource_version:
            return []
        self._write(kept, obj, old)
        return [Change(MODIFIED, obj, old)]

    def _write(self, kept: Kept, obj: T, old: T | None) -> None:
        self._own()
        key, self._objects[key] = kept
        for name, function in self._functions.items():
            values = tuple(function(obj))
            before = () if old is None else tuple(function(old))
            if values != before:
                self._unfile(name, key, before)
                self._file(name, key, values)

    def _own(self) -> None:
        if self._shared:
            self._objects = dict(self._objects)
            self._shared = False

    def _file(self, index: str, key: Key, values: Iterable[str]) -> None:
        for value in values:
            self._indexes[index][value][key] = None

    def _unfile(self, index: str, key: Key, values: Iterable[str]) -> None:
        filed = self._indexes[index]
        for value in values:
            filed[value].pop(key, None)
            if not filed[value]:
                del filed[value]
