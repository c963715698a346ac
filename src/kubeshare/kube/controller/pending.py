"""Timers of a controller: since when, and not before when.

A reconcile function keeps no state of its own between two calls, but some decisions need time:
"the pod has been unschedulable for 10 s", "create the next placeholder in 4 s at the earliest".
:class:`PendingSince` and :class:`NotBefore` remember that time for each key. Nothing is
scheduled here: a reconcile function asks for the remaining seconds and returns
``RequeueAfter``.

Times are those of a monotonic clock, by default the running event loop's. They are lost when
the program ends, so every wait starts again after a restart.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
Clock: TypeAlias = Callable[[], float]


def loop_time() -> float:
    """Seconds on the running event loop's monotonic clock."""
    return asyncio.get_running_loop().time()


class PendingSince(Generic[K]):
    """Remembers since when a state has lasted, for each key that is in it.

    The time of a key starts when it is first asked for, and starts again when the key belongs
    to another object (another ``uid``).

    Args:
        clock: returns the present in seconds.
    """

    def __init__(self, clock: Clock = loop_time) -> None:
        self._clock = clock
        self._started: dict[K, tuple[str, float]] = {}  # uid, time

    def since(self, key: K, uid: str = "") -> float:
        """When the state began; the present if the key, or this ``uid`` of it, is new."""
        started = self._started.get(key)
        if started is None or started[0] != uid:
            return self.restart(key, uid)
        return started[1]

    def remaining(self, key: K, seconds: float, uid: str = "") -> float:
        """Seconds until the state will have lasted ``seconds``; 0 once it has."""
        return max(0.0, self.since(key, uid) + seconds - self._clock())

    def restart(self, key: K, uid: str = "") -> float:
        """Let the state begin now; returns the present."""
        now = self._clock()
        self._started[key] = uid, now
        return now

    def forget(self, key: K) -> None:
        """End the state of a key; nothing happens if the key is not in it."""
        self._started.pop(key, None)

    def retain(self, keys: Iterable[K]) -> None:
        """Forget all keys but these."""
        kept = set(keys)
        for key in [key for key in self._started if key not in kept]:
            del self._started[key]

    def __contains__(self, key: K) -> bool:
        return key in self._started

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._started))

    def __len__(self) -> int:
        return len(self._started)


class NotBefore(Generic[K]):
    """Remembers the earliest time of the next attempt, for each key that has to wait.

    Args:
        clock: returns the present in seconds.
    """

    def __init__(self, clock: Clock = loop_time) -> None:
        self._clock = clock
        self._times: dict[K, float] = {}

    def delay(self, key: K, seconds: float) -> None:
        """Allow the next attempt in ``seconds`` from now; replaces an earlier delay."""
        self._times[key] = self._clock() + seconds

    def remaining(self, key: K) -> float:
        """Seconds until the next attempt is allowed; 0 if it is allowed now."""
        if key not in self._times:
            return 0.0
        return max(0.0, self._times[key] - self._clock())

    def forget(self, key: K) -> None:
        """Allow the next attempt of a key at once."""
        self._times.pop(key, None)
