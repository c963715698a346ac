"""Keys that need a look, each at most once in the queue and never looked at twice at once.

A key added while it waits is one key. A key added while it is being processed comes
back when that is done. So two workers never hold the same key, and no change is lost
because it came at a bad moment.

Keys of the first list go to a second lane, taken only when the first is empty: after
a restart, news does not wait behind ten thousand objects that are as they should be.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class QueueClosedError(Exception):
    """The queue has been closed: there is no more work to take."""


def _ignore(_seconds: float) -> None:
    pass


class WorkQueue(Generic[K]):
    """A queue of keys with deduplication, delays, and backoff for each key.

    Args:
        name: for metrics.
        first: seconds until the first retry of a key; doubles with each failure.
        last: seconds between retries, at most.

    Attributes:
        adds: keys put into the queue (not those that were in it already).
        retries: calls of ``add_rate_limited``.
        on_taken: told the seconds that a key waited in the queue.
        on_done: told the seconds that a key was processed.
    """

    def __init__(self, name: str = "", *, first: float = 0.005, last: float = 1000.0) -> None:
        self.name = name
        self._first = first
        self._last = last
        # OrderedDicts as ordered sets that give up their oldest in constant time.
        self._news: OrderedDict[K, None] = OrderedDict()
        self._initial: OrderedDict[K, None] = OrderedDict()
        self._queued_at: dict[K, float] = {}
        self._taken_at: dict[K, float] = {}  # exactly the keys being processed
        self._again: set[K] = set()  # of those: the ones added meanwhile
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: Counter[K] = Counter()
        self._ready = asyncio.Event()
        self._closed = False
        self.adds = 0
        self.retries = 0
        self.on_taken: Callable[[float], None] = _ignore
        self.on_done: Callable[[float], None] = _ignore

    def __len__(self) -> int:
        return len(self._news) + len(self._initial)

    @property
    def processing(self) -> int:
        """How many keys are being processed."""
        return len(self._taken_at)

    @property
    def unfinished_seconds(self) -> float:
        """Sum of the seconds for which the keys in process have been so."""
        now = _now()
        return sum(now - since for since in self._taken_at.values())

    @property
    def longest_seconds(self) -> float:
        """Seconds for which the oldest key in process has been so; 0 if there is none."""
        return max((_now() - since for since in self._taken_at.values()), default=0.0)

    def add(self, key: K, *, initial: bool = False) -> None:
        """Queue a key; ``initial`` keys wait until there are no others."""
        if self._closed or key in self._news:
            return
        if key in self._taken_at:
            self._again.add(key)
            return
        if key in self._initial:
            if initial:
                return
            del self._initial[key]
        else:
            self.adds += 1
            self._queued_at[key] = _now()
        (self._initial if initial else self._news)[key] = None
        self._ready.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key later; of several such calls the earliest time counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        known = self._delayed.get(key)
        if known is not None:
            if known.when() <= when:
                return
            known.cancel()
        self._delayed[key] = loop.call_at(when, self._due, key)

    def add_rate_limited(self, key: K) -> None:
        """Queue a key that failed, after its backoff."""
        self.retries += 1
        # 2**64 outgrows every `last`; a larger exponent would overflow some day.
        wait = min(self._last, self._first * 2.0 ** min(self._failures[key], 64))
        self._failures[key] += 1
        self.add_after(key, wait)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is a first one again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key failed since it was last forgotten."""
        return self._failures[key]

    async def get(self) -> K:
        """Take the next key; ``done`` must follow.

        Raises:
            QueueClosedError: the queue was closed, before or while waiting.
        """
        while not self._closed:
            lane = self._news or self._initial
            if lane:
                key, _ = lane.popitem(last=False)
                now = _now()
                self.on_taken(now - self._queued_at.pop(key))
                self._taken_at[key] = now
                return key
            self._ready.clear()
            await self._ready.wait()
        raise QueueClosedError

    def done(self, key: K) -> None:
        """The key has been processed; it is queued again if it was added meanwhile."""
        self.on_done(_now() - self._taken_at.pop(key))
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Give out no more keys, take in no more, and wake who waits.

        What is queued is dropped: whoever starts next finds it by listing.
        """
        self._closed = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._ready.set()

    def _due(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
