"""A queue of keys: deduplicated, prioritised, delayed and rate-limited.

A key added while it is queued stays one key. A key added while it is being processed is queued
again when that ends. So two workers never process the same key, and no change is lost,
whenever it comes (as in client-go's ``util/workqueue``).

A key may have a priority: the lowest number is taken first, and keys of one priority in the
order in which they were added. Keys of the first list go to a second lane of their priority,
which is used while the first is empty: after a restart, news does not wait behind ten thousand
objects that need nothing. If there is always news, every :data:`INITIAL_EVERY` th key is one of
the first list.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from itertools import chain, islice
from typing import Final, Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
_Lane: TypeAlias = tuple[int, bool]  # priority, from the first list

INITIAL_EVERY: Final = 8
"""Of so many keys of one priority, one comes from the first list while both lanes have keys."""


class QueueClosedError(Exception):
    """The queue has been closed."""


def _ignore(_seconds: float) -> None:
    pass


def _same_priority(_key: object) -> int:
    return 0


class WorkQueue(Generic[K]):
    """A queue of keys with deduplication, delays, and a backoff for each key.

    Args:
        name: for metrics.
        base_delay: seconds until the first retry of a key; doubles with each failure.
        max_delay: longest delay of a retry, in seconds.
        priority: returns the priority of a key when it is queued; few different values. By
            default all are equal.

    Attributes:
        adds: keys that were queued (not those that were in the queue already).
        retries: calls of ``add_rate_limited``.
        on_taken: called with the seconds that a key was queued.
        on_done: called with the seconds that a key was processed.
    """

    def __init__(
        self,
        name: str = "",
        *,
        base_delay: float = 0.005,
        max_delay: float = 1000.0,
        priority: Callable[[K], int] = _same_priority,
    ) -> None:
        self.name = name
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._priority = priority
        # Ordered sets from which the oldest key is removed in constant time; none is empty.
        self._lanes: dict[_Lane, OrderedDict[K, None]] = {}
        self._lane_of: dict[K, _Lane] = {}
        self._queued_at: dict[K, float] = {}
        self._taken_at: dict[K, float] = {}  # the keys being processed
        self._dirty: set[K] = set()  # keys added while they are processed
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: Counter[K] = Counter()
        self._queued = asyncio.Semaphore(0)  # its value is the number of queued keys
        self._closed = False
        self._passed_over = 0  # keys taken since the last one of a first list
        self.adds = 0
        self.retries = 0
        self.on_taken: Callable[[float], None] = _ignore
        self.on_done: Callable[[float], None] = _ignore

    def __len__(self) -> int:
        return len(self._lane_of)

    @property
    def processing(self) -> int:
        """How many keys are being processed."""
        return len(self._taken_at)

    @property
    def unfinished_seconds(self) -> float:
        """Sum of the seconds that the keys in process have taken so far."""
        now = _now()
        return sum(now - since for since in self._taken_at.values())

    @property
    def longest_seconds(self) -> float:
        """Seconds that the oldest key in process has taken so far; 0 if there is none."""
        return max((_now() - since for since in self._taken_at.values()), default=0.0)

    def add(self, key: K, *, initial: bool = False) -> None:
        """Queue a key; ``initial`` keys yield to others of their priority."""
        if self._closed:
            return
        if key in self._taken_at:
            self._dirty.add(key)
            return
        lane, present = (self._priority(key), initial), self._lane_of.get(key)
        if present is None:
            self.adds += 1
            self._queued_at[key] = _now()
            self._queued.release()
        elif present <= lane:
            return
        else:
            self._unqueue(key, present)
        self._lanes.setdefault(lane, OrderedDict())[key] = None
        self._lane_of[key] = lane

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay; of several such calls, the earliest time counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        timer = self._delayed.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._delayed[key] = loop.call_at(when, self._add_delayed, key)

    def cancel_delay(self, key: K) -> None:
        """Cancel the delayed addition of a key."""
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()

    def delay(self, key: K) -> float | None:
        """Seconds until the delayed addition of a key; None if there is none."""
        timer = self._delayed.get(key)
        return None if timer is None else max(0.0, timer.when() - _now())

    def add_rate_limited(self, key: K, limit: float = math.inf) -> None:
        """Queue a failed key after its backoff, but after at most ``limit`` seconds."""
        self.retries += 1
        # 2**64 outgrows every `max_delay`; a larger exponent overflows.
        wait = min(limit, self._max_delay, self._base_delay * 2.0 ** min(self._failures[key], 64))
        self._failures[key] += 1
        self.add_after(key, wait)

    def forget(self, key: K) -> None:
        """Reset the backoff of a key that succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key failed since ``forget`` was last called."""
        return self._failures[key]

    async def get(self) -> K:
        """Take the next key; ``done`` must follow.

        Raises:
            QueueClosedError: the queue was closed, before or while waiting.
        """
        await self._queued.acquire()
        if self._closed:
            self._queued.release()  # wake the next waiter
            raise QueueClosedError
        lane = self._next_lane()
        key = next(iter(self._lanes[lane]))
        self._unqueue(key, lane)
        now = _now()
        self.on_taken(now - self._queued_at.pop(key))
        self._taken_at[key] = now
        return key

    def upcoming(self, limit: int) -> list[K]:
        """The keys that are taken next, in about that order; they stay queued."""
        lanes = sorted(self._lanes)
        return list(islice(chain.from_iterable(self._lanes[lane] for lane in lanes), limit))

    def done(self, key: K) -> None:
        """End the processing of a key; it is queued again if it was added in between."""
        self.on_done(_now() - self._taken_at.pop(key))
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def close(self) -> None:
        """Stop: ``get`` raises, ``add`` does nothing.

        Queued keys are dropped: the next leader finds their objects by listing.
        """
        self._closed = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._queued.release()

    def _next_lane(self) -> _Lane:
        first = min(self._lanes)
        second = first[0], True
        if second == first or second not in self._lanes:
            return first
        self._passed_over = (self._passed_over + 1) % INITIAL_EVERY
        return first if self._passed_over else second

    def _unqueue(self, key: K, lane: _Lane) -> None:
        del self._lane_of[key]
        del self._lanes[lane][key]
        if not self._lanes[lane]:
            del self._lanes[lane]

    def _add_delayed(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
