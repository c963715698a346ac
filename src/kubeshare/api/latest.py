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

import asyncio
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from kubeshare.kube.meta import Key, key_of, metadata_of
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.store import DELETED, Change

T = TypeVar("T")

UNSEEN_SECONDS: Final = 60.0
"""How long something that was made is believed in while no watch tells of it."""


class _Answer(Struct, Generic[T], frozen=True):
    """What the API server answered, and the resourceVersions older than it (``""``: none yet)."""

    object: T
    older: frozenset[str]
    at: float


class Latest(Generic[T]):
    """A view of a reflector's store that has this program's own writes at once.

    Args:
        reflector: fills the store.
    """

    def __init__(self, reflector: Reflector[T]) -> None:
        self._store = reflector.store
        self._answers: dict[Key, _Answer[T]] = {}
        reflector.subscribe(self._watched)

    def get(self, key: Key) -> T | None:
        """The object of that name, or None."""
        stored = self._store.by_key(key)
        answer = self._answers.get(key)
        if answer is None:
            return stored
        if stored is None and _now() - answer.at > UNSEEN_SECONDS:
            # It came and went while the watch was broken.
            del self._answers[key]
            return None
        return answer.object

    def all(self) -> Iterator[T]:
        """Every object, in no order."""
        for key, stored in self._store.snapshot().items():
            if key not in self._answers:
                yield stored
        for key in tuple(self._answers):
            answer = self.get(key)
            if answer is not None:
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
        earlier = self._answers.get(key)
        older = {_version(known) for known in (stored, over, earlier and earlier.object)}
        older |= earlier.older if earlier else set()
        self._answers[key] = _Answer(answer, frozenset(older - {_version(answer)}), _now())

    def forget(self, key: Key) -> None:
        """The object is known to be gone."""
        self._answers.pop(key, None)

    def _watched(self, change: Change[T]) -> None:
        answer = self._answers.get(change.key)
        if answer and (change.type == DELETED or _version(change.object) not in answer.older):
            del self._answers[change.key]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _version(obj: Any) -> str:
    return "" if obj is None else metadata_of(obj).resource_version
