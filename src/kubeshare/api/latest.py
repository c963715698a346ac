"""A store's objects, but never older than what this program has written itself.

A watch tells a write some milliseconds after its answer came. A decision made in
between would not see the one before it: two demands of .6 would both be meant for
the same GPU (the second is refused, since it was made from an old state, but that
costs a read and another decision). So answers are kept here until the watch has
told them too.

resourceVersions are compared for equality only. Known to be older than our answer
are the states that we wrote over and our earlier answers; whatever else the watch
tells is taken for news. Should it be old all the same, the next write is refused
and the object read again: this saves work, it is not what keeps GPUs apart.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from kubeshare.kube.meta import Key, key_of, metadata_of
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.store import DELETED, Change

T = TypeVar("T")


class Latest(Generic[T]):
    """A view of a reflector's store that has this program's own writes at once.

    Args:
        reflector: fills the store.
    """

    def __init__(self, reflector: Reflector[T]) -> None:
        self._store = reflector.store
        # key -> our answer, and the resourceVersions older than it ("" is "not there yet")
        self._answers: dict[Key, tuple[T, frozenset[str]]] = {}
        reflector.subscribe(self._watched)

    def get(self, key: Key) -> T | None:
        """The object of that name, or None."""
        if key in self._answers:
            return self._answers[key][0]
        return self._store.by_key(key)

    def all(self) -> Iterator[T]:
        """Every object, in no order."""
        for key, stored in self._store.snapshot().items():
            if key not in self._answers:
                yield stored
        for answer, _ in tuple(self._answers.values()):
            yield answer

    def put(self, answer: T, over: T | None = None) -> None:
        """Note what the API server has answered.

        Args:
            answer: the object as it is stored.
            over: the state that was written over; None where it was created or only read.
        """
        key = key_of(answer)
        stored = self._store.by_key(key)
        if stored is not None and _version(stored) == _version(answer):
            self._answers.pop(key, None)
            return
        _, older = self._answers.get(key, (None, frozenset[str]()))
        older |= {_version(known) for known in (stored, over, self.get(key))}
        self._answers[key] = (answer, older - {_version(answer)})

    def forget(self, key: Key) -> None:
        """The object is known to be gone."""
        self._answers.pop(key, None)

    def _watched(self, change: Change[T]) -> None:
        answer = self._answers.get(change.key)
        if answer and (change.type == DELETED or _version(change.object) not in answer[1]):
            del self._answers[change.key]


def _version(obj: Any) -> str:
    return "" if obj is None else metadata_of(obj).resource_version
