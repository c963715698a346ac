"""A reflector's store that shows this program's own writes at once.

A watch delivers a write some milliseconds after its response. A decision made in between would
not see the one before it: two demands of 0.6 would be placed on the same GPU (the second write
would be refused, since it tests an old state, but that costs a read and another decision). So
responses are kept here until the watch has delivered them.

The watch may also be ahead: while the response to a creation is on its way, the watch may
deliver later versions of the object. So the newer of the two is shown, by the order of
resourceVersions, which clients may compare since Kubernetes 1.35 (KEP-5504). An object that a
live read did not find is gone, whatever a lagging watch shows. An object that was created and
that the watch has not delivered although it is past that version is gone, too. A watch that is
disconnected delivers nothing, however long that lasts.

A restore of etcd from a snapshot loses writes. If the versions have gone back, all that is kept
here is dropped; else, what the next list does not show at its version.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change, IndexFunction
from kubeshare.kube.meta import Key, identity_of, key_of

T = TypeVar("T")


class AssumeCache(Generic[T]):
    """The objects of a reflector's store, with this program's own writes.

    Args:
        reflector: fills the store.
    """

    def __init__(self, reflector: Reflector[T]) -> None:
        self._reflector = reflector
        self._store = reflector.store
        self._assumed: dict[Key, T] = {}
        self._gone: dict[Key, int] = {}  # known to be gone -> the version still in the store
        self._lost: dict[Key, T] = {}  # assumed before a restore, until the next list
        self._indexes: dict[str, IndexFunction[T]] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._own_write: Change[T] | None = None
        self._superseded: tuple[Change[T], T] | None = None
        reflector.subscribe(self._on_change)
        reflector.subscribe_to_lists(self._unlisted)
        reflector.subscribe_to_restores(self._drop_all)

    def get(self, key: Key) -> T | None:
        """The object of that name, or None."""
        assumed = self._assumed.get(key)
        if assumed is None:
            return None if self._is_gone(key) else self._store.by_key(key)
        if key not in self._store and self._delivered_version() >= _version(assumed):
            # It was created and deleted while the watch was disconnected.
            self.forget(assumed)
            return None
        return assumed

    def is_unobserved(self, key: Key) -> bool:
        """Whether it was created and the watch has not delivered it."""
        return key in self._assumed and key not in self._store

    def all(self) -> Iterator[T]:
        """Every object, in no order."""
        for key, stored in self._store.snapshot().items():
            if key not in self._assumed and not self._is_gone(key):
                yield stored
        for key in tuple(self._assumed):
            assumed = self.get(key)
            if assumed is not None:
                yield assumed

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index; ``function`` is pure and returns the values of an object."""
        self._indexes[name] = function
        self._store.add_index(name, function)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects that have a value in an index, in no order.

        Raises:
            KeyError: there is no such index.
        """
        function = self._indexes[name]
        stored = (
            self._store.by_key(key)
            for key in self._store.keys_by_index(name, value)
            if key not in self._assumed and not self._is_gone(key)
        )
        found = [one for one in stored if one is not None]
        # There are few at any time: those whose watch event is on its way.
        for key in tuple(self._assumed):
            assumed = self.get(key)
            if assumed is not None and value in function(assumed):
                found.append(assumed)
        return found

    def each_by_index(self, name: str, value: str) -> Iterator[T]:
        """The same one by one: each is read when it is asked for, as it is then.

        Raises:
            KeyError: there is no such index.
        """
        function = self._indexes[name]
        for key in dict.fromkeys((*self._store.keys_by_index(name, value), *self._assumed)):
            found = self.get(key)
            if found is not None and value in function(found):
                yield found

    def count_by_index(self, name: str, value: str) -> int:
        """How many objects have a value in an index, without reading all of them.

        Raises:
            KeyError: there is no such index.
        """
        function, stored = self._indexes[name], self._store.keys_by_index(name, value)
        unsure = self._assumed.keys() | self._gone.keys()
        latest = (self.get(key) for key in tuple(self._assumed))
        return sum(key not in unsure for key in stored) + sum(
            each is not None and value in function(each) for each in latest
        )

    def subscribe(self, handler: Callable[[Key], None]) -> None:
        """Call ``handler`` with each key for which :meth:`get` may return something else.

        It must return at once and not raise.
        """
        self._handlers.append(handler)

    def expire(self) -> None:
        """Forget objects that were created and deleted while the watch was disconnected."""
        for key in tuple(self._assumed):
            self.get(key)

    def assume(self, answer: T) -> None:
        """Add an object as the API server has returned it."""
        key = key_of(answer)
        assumed = self._assumed.get(key)
        known = (self._store.by_key(key), assumed)
        if all(_version(answer) > _version(one) for one in known):
            self._assumed.pop(key, None)
            # Check one of the oldest each time, so the ones never delivered do not pile up.
            self.get(next(iter(self._assumed), key))
            self._assumed[key] = answer
            self._notify(key)

    def forget(self, known: T) -> None:
        """Remove an object that is known to be gone; one of its name that came later stays.

        Args:
            known: the object. If a read did not find it, as it was known before the read: what
                the watch has delivered since may have been created after the read.
        """
        key = key_of(known)
        stored, assumed = self._store.by_key(key), self._assumed.get(key)
        latest = stored if assumed is None else assumed
        if latest is None or _uid(latest) != _uid(known):
            return
        self._assumed.pop(key, None)
        if stored is not None:
            self._gone[key] = _version(stored)
        self._notify(key)

    def _delivered_version(self) -> int:
        return int(self._reflector.resource_version or 0)

    def _is_gone(self, key: Key) -> bool:
        return key in self._gone and self._gone[key] == _version(self._store.by_key(key))

    def is_own_write(self, change: Change[T]) -> bool:
        """Whether the change that is being delivered was assumed before."""
        return change is self._own_write

    def superseded(self, change: Change[T]) -> T | None:
        """The assumed object that the change being delivered has replaced, or None.

        It may differ from both the old and the new object of the change.
        """
        superseded = self._superseded
        return superseded[1] if superseded is not None and superseded[0] is change else None

    def _on_change(self, change: Change[T]) -> None:
        key = change.key
        self._gone.pop(key, None)
        self._own_write = self._superseded = None
        assumed = self._assumed.get(key)
        if assumed is not None:
            known, delivered = _version(assumed), _version(change.object)
            # The deleted object may be a namesake of one that was created since.
            gone = change.type == DELETED and _uid(assumed) == _uid(change.object)
            if gone or delivered >= known:
                del self._assumed[key]
            if change.type != DELETED and delivered == known:
                self._own_write = change
            if delivered > known:
                self._superseded = change, assumed
        self._notify(key)

    def _unlisted(self) -> list[Change[T]]:
        """The deletions that the list did not show: created and deleted since the last event."""
        known, self._lost = self._lost | self._assumed, {}
        for key, assumed in tuple(self._assumed.items()):
            # An older state in a list of a later version: a restore has lost the write.
            if self._delivered_version() >= _version(assumed):
                del self._assumed[key]
                self._notify(key)
        return [Change(DELETED, assumed) for key, assumed in known.items() if self.get(key) is None]

    def _drop_all(self) -> None:
        """Forget what is only known of a history that the API server no longer has."""
        self._lost |= self._assumed
        changed = self._assumed.keys() | self._gone.keys()
        self._assumed.clear()
        self._gone.clear()
        for key in changed:
            self._notify(key)

    def _notify(self, key: Key) -> None:
        for handler in self._handlers:
            handler(key)


def _uid(obj: Any) -> str:
    return str(identity_of(obj).uid)


def _version(obj: Any) -> int:
    """The resourceVersion as a number; 0 for None."""
    return 0 if obj is None else int(identity_of(obj).resource_version)
