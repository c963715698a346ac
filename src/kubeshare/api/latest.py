"""A store's objects, but never older than what this program has written itself.

A watch tells a write some milliseconds after its answer came. A decision made in
between would not see the one before it: two demands of .6 would both be meant for
the same GPU (the second is refused, since it was made from an old state, but that
costs a read and another decision). So answers are kept here until the watch has
told them too.

It may also be the other way round: while the answer to a creation is on its way,
the watch may tell of the object and of what others have made of it. So the newer
of the two is shown, by the order of their resourceVersions, which clients may
compare from Kubernetes 1.35 on (KEP-5504).
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
    """What the API server answered, and when (loop time)."""

    object: T
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

    def put(self, answer: T) -> None:
        """Note what the API server has answered: the object as it is stored."""
        key = key_of(answer)
        earlier = self._answers.get(key)
        known = (self._store.by_key(key), earlier and earlier.object)
        if all(_version(answer) > _version(one) for one in known):
            self._answers[key] = _Answer(answer, _now())

    def forget(self, key: Key) -> None:
        """The object is known to be gone."""
        self._answers.pop(key, None)

    def _watched(self, change: Change[T]) -> None:
        answer = self._answers.get(change.key)
        if answer is None:
            return
        if change.type == DELETED or _version(change.object) >= _version(answer.object):
            del self._answers[change.key]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _version(obj: Any) -> int:
    """Its place among all versions of all objects of its kind; 0 where there is none."""
    return 0 if obj is None else int(metadata_of(obj).resource_version)
