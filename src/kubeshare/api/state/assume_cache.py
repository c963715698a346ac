"""A store's objects, but never older than what this program has written itself.

A watch tells a write some milliseconds after its answer came. A decision made in
between would not see the one before it: two demands of .6 would both be meant for
the same GPU (the second is refused, since it was made from an old state, but that
costs a read and another decision). So answers are kept here until the watch has
told them too.

It may also be the other way round: while the answer to a creation is on its way,
the watch may tell of the object and of what others have made of it. So the newer
of the two is shown, by the order of their resourceVersions, which clients may
compare from Kubernetes 1.35 on (KEP-5504). And what a live read did not find is
gone, whatever a watch that lags behind still shows; so is what was made when a watch is past
that and has not told of it. A watch that is cut off says nothing, however long that lasts.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change, IndexFunction
from kubeshare.kube.meta import Key, identity_of, key_of

T = TypeVar("T")


class AssumeCache(Generic[T]):
    """A view of a reflector's store that has this program's own writes at once.

    Args:
        reflector: fills the store.
    """

    def __init__(self, reflector: Reflector[T]) -> None:
        self._reflector = reflector
        self._store = reflector.store
        self._answers: dict[Key, T] = {}
        self._gone: dict[Key, int] = {}  # known to be gone -> the version that the store still has
        self._indexes: dict[str, IndexFunction[T]] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._known: Change[T] | None = None
        self._superseded: tuple[Change[T], T] | None = None
        reflector.subscribe(self._watched)

    def get(self, key: Key) -> T | None:
        """The object of that name, or None."""
        answer = self._answers.get(key)
        if answer is None:
            return None if self._is_gone(key) else self._store.by_key(key)
        if key not in self._store and self._told_up_to() >= _version(answer):
            # It came and went while the watch was broken.
            self.forget(key)
            return None
        return answer

    def is_unobserved(self, key: Key) -> bool:
        """It was made, and no watch has told of it yet."""
        return key in self._answers and key not in self._store

    def all(self) -> Iterator[T]:
        """Every object, in no order."""
        for key, stored in self._store.snapshot().items():
            if key not in self._answers and not self._is_gone(key):
                yield stored
        for key in tuple(self._answers):
            answer = self.get(key)
            if answer is not None:
                yield answer

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Have objects found by what a pure function says of each."""
        self._indexes[name] = function
        self._store.add_index(name, function)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects that an index files under a value, in no order.

        Raises:
            KeyError: there is no such index.
        """
        function = self._indexes[name]
        seen = (
            self._store.by_key(key)
            for key in self._store.keys_by_index(name, value)
            if key not in self._answers and not self._is_gone(key)
        )
        found = [one for one in seen if one is not None]
        # Few at any moment: those whose watch event is on its way.
        for key in tuple(self._answers):
            answer = self.get(key)
            if answer is not None and value in function(answer):
                found.append(answer)
        return found

    def subscribe(self, handler: Callable[[Key], None]) -> None:
        """Tell ``handler`` each name of which :meth:`get` may say something else from now on.

        It must return at once and not raise.
        """
        self._handlers.append(handler)

    def expire(self) -> None:
        """Stop believing in what came and went while the watch was broken."""
        for key in tuple(self._answers):
            self.get(key)

    def assume(self, answer: T) -> None:
        """Note what the API server has answered: the object as it is stored."""
        key = key_of(answer)
        earlier = self._answers.get(key)
        known = (self._store.by_key(key), earlier)
        if all(_version(answer) > _version(one) for one in known):
            self._answers.pop(key, None)
            # Of those that no watch has told of, one goes for each that comes.
            self.get(next(iter(self._answers), key))
            self._answers[key] = answer
            self._tell(key)

    def forget(self, key: Key) -> None:
        """The object is known to be gone."""
        stored = self._store.by_key(key)
        answer = self._answers.pop(key, None)
        if stored is not None:
            self._gone[key] = _version(stored)
        if stored is not None or answer is not None:
            self._tell(key)

    def _told_up_to(self) -> int:
        return int(self._reflector.resource_version or 0)

    def _is_gone(self, key: Key) -> bool:
        return key in self._gone and self._gone[key] == _version(self._store.by_key(key))

    def is_own_write(self, change: Change[T]) -> bool:
        """A change that the watch is telling says what an answer has said before."""
        return change is self._known

    def superseded(self, change: Change[T]) -> T | None:
        """The answer that was believed in until the watch told this, which is newer; or None.

        It may be like neither what the watch told before nor what it tells now.
        """
        told = self._superseded
        return told[1] if told is not None and told[0] is change else None

    def _watched(self, change: Change[T]) -> None:
        key = change.key
        self._gone.pop(key, None)
        self._known = self._superseded = None
        answer = self._answers.get(key)
        if answer is not None:
            known, seen = _version(answer), _version(change.object)
            # What was deleted may be a namesake of what has been made since.
            gone = change.type == DELETED and _uid(answer) == _uid(change.object)
            if gone or seen >= known:
                del self._answers[key]
            if change.type != DELETED and seen == known:
                self._known = change
            if seen > known:
                self._superseded = change, answer
        self._tell(key)

    def _tell(self, key: Key) -> None:
        for handler in self._handlers:
            handler(key)


def _uid(obj: Any) -> str:
    return str(identity_of(obj).uid)


def _version(obj: Any) -> int:
    """Its place among all versions of all objects of its kind; 0 where there is none."""
    return 0 if obj is None else int(identity_of(obj).resource_version)
