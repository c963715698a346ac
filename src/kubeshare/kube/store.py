"""The local copy of a kind of objects: by name, by uid, and by whatever an index asks.

Only the reflector writes. Readers get immutable snapshots that cost nothing until
the next change (copy on write), so that a decision may look at one consistent
picture for as long as it takes.

The copy lags behind the API server. That is no defect to be worked around by
reading live: a decision made from an old picture is written conditionally, and
fails.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from msgspec import Struct

from kubeshare.kube.meta import Key, metadata_of

T = TypeVar("T")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


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
        return metadata_of(self.object).key


IndexFunction = Callable[[T], Iterable[str]]


class Store(Generic[T]):
    """Objects of one kind.

    Args:
        indexes: name of an index -> function that says under which values an object is
            found. The functions must be pure.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._shared = False  # a snapshot holds `_objects`: copy before the next write
        self._keys: dict[str, Key] = {}  # uid -> key
        self._functions = dict(indexes or {})
        # index -> value -> keys, in the order in which they came (a dict as an ordered set)
        self._indexes: dict[str, defaultdict[str, dict[Key, None]]] = {
            name: defaultdict(dict) for name in self._functions
        }

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of that name, or None."""
        return self._objects.get(Key(namespace, name))

    def by_key(self, key: Key) -> T | None:
        """The object of that namespace and name, or None."""
        return self._objects.get(key)

    def by_uid(self, uid: str) -> T | None:
        """The object with that uid, or None; a namesake made later has another uid."""
        key = self._keys.get(uid)
        return None if key is None else self._objects.get(key)

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that an index files under a value.

        Raises:
            KeyError: there is no such index.
        """
        keys = self._indexes[index].get(value, {})
        return tuple(self._objects[key] for key in keys)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index; objects that are there already are filed too."""
        self._functions[name] = function
        self._indexes[name] = defaultdict(dict)
        for key, obj in self._objects.items():
            self._file(name, key, obj)

    def snapshot(self) -> Mapping[Key, T]:
        """All objects as they are now; later changes do not show in it."""
        self._shared = True
        return MappingProxyType(self._objects)

    def put(self, obj: T, *, initial: bool = False) -> list[Change[T]]:
        """Store an object and tell what that changes.

        Nothing when the resourceVersion is the one that is stored already; a deletion
        and an addition when the name now belongs to another object.
        """
        metadata = metadata_of(obj)
        old = self._objects.get(metadata.key)
        changes: list[Change[T]] = []
        if old is not None:
            known = metadata_of(old)
            if known.uid == metadata.uid:
                if known.resource_version == metadata.resource_version:
                    return []
                self._write(metadata.key, metadata.uid, obj, old)
                return [Change(MODIFIED, obj, old)]
            changes += self.remove(metadata.key)
        self._write(metadata.key, metadata.uid, obj, None)
        return [*changes, Change(ADDED, obj, initial=initial)]

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
        old = self._objects.get(key)
        if old is None:
            return []
        stored = metadata_of(old).uid
        if uid and uid != stored:
            return []
        self._own()
        del self._objects[key]
        self._keys.pop(stored, None)
        self._unfile(key, old)
        return [Change(DELETED, old if last is None else last, old)]

    def replace(
        self, objects: Iterable[T], *, keep: Container[Key] = (), initial: bool = False
    ) -> list[Change[T]]:
        """Make the store equal to a complete list, and tell what that changes.

        Args:
            objects: all there are.
            keep: keys that stay as they are though they are not in ``objects``.
            initial: whether this is the first list.
        """
        listed = {metadata_of(obj).key: obj for obj in objects}
        changes: list[Change[T]] = []
        for key in [key for key in self._objects if key not in listed and key not in keep]:
            changes += self.remove(key)
        for obj in listed.values():
            changes += self.put(obj, initial=initial)
        return changes

    def _write(self, key: Key, uid: str, obj: T, old: T | None) -> None:
        self._own()
        if old is not None:
            self._unfile(key, old)
        self._objects[key] = obj
        self._keys[uid] = key
        for name in self._functions:
            self._file(name, key, obj)

    def _own(self) -> None:
        if self._shared:
            self._objects = dict(self._objects)
            self._shared = False

    def _file(self, index: str, key: Key, obj: T) -> None:
        for value in self._functions[index](obj):
            self._indexes[index][value][key] = None

    def _unfile(self, key: Key, obj: T) -> None:
        for name, function in self._functions.items():
            filed = self._indexes[name]
            for value in function(obj):
                filed[value].pop(key, None)
                if not filed[value]:
                    del filed[value]
