"""Keys that need a look, each at most once in the queue and never looked at twice at once.

A key added while it waits is one key. A key added while it is being processed comes
back when that is done. So two workers never hold the same key, and no change is lost
because it came at a bad moment.

Keys may have a rank; a lower one is taken first, and of one rank they are taken in the
order in which they came. Keys of the first list go to a second lane of their rank, taken
when the first is empty: after a restart, news does not wait behind ten thousand objects that
are as they should be. Where there is always news, they have every :data:`TURN` th turn.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
_Lane: TypeAlias = tuple[int, bool]  # rank, of the first list

TURN: Final = 8
"""How many keys of a rank are taken for one of the first list, as long as both wait."""


class QueueClosedError(Exception):
    """The queue has been closed: there is no more work to take."""


def _ignore(_seconds: float) -> None:
    pass


def _alike(_key: object) -> int:
    return 0


class WorkQueue(Generic[K]):
    """A queue of keys with deduplication, delays, and backoff for each key.

    Args:
        name: for metrics.
        first: seconds until the first retry of a key; doubles with each failure.
        last: seconds between retries, at most.
        rank: of a key when it is queued; few different ones. By default all are alike.

    Attributes:
        adds: keys put into the queue (not those that were in it already).
        retries: calls of ``add_rate_limited``.
        on_taken: told the seconds that a key waited in the queue.
        on_done: told the seconds that a key was processed.
    """

    def __init__(
        self,
        name: str = "",
        *,
        first: float = 0.005,
        last: float = 1000.0,
        rank: Callable[[K], int] = _alike,
    ) -> None:
        self.name = name
        self._first = first
        self._last = last
        self._rank = rank
        # OrderedDicts as ordered sets that give up their oldest in constant time; none is empty.
        self._lanes: dict[_Lane, OrderedDict[K, None]] = {}
        self._lane_of: dict[K, _Lane] = {}
        self._queued_at: dict[K, float] = {}
        self._taken_at: dict[K, float] = {}  # exactly the keys being processed
        self._again: set[K] = set()  # of those: the ones added meanwhile
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: Counter[K] = Counter()
        self._queued = asyncio.Semaphore(0)  # as many as there are keys in the lanes
        self._closed = False
        self._passed = 0  # keys taken while one of the first list has waited
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
        """Sum of the seconds for which the keys in process have been so."""
        now = _now()
        return sum(now - since for since in self._taken_at.values())

    @property
    def longest_seconds(self) -> float:
        """Seconds for which the oldest key in process has been so; 0 if there is none."""
        return max((_now() - since for since in self._taken_at.values()), default=0.0)

    def add(self, key: K, *, initial: bool = False) -> None:
        """Queue a key; ``initial`` keys wait until there are no others."""
        if self._closed:
            return
        if key in self._taken_at:
            self._again.add(key)
            return
        lane, present = (self._rank(key), initial), self._lane_of.get(key)
        if present is None:
            self.adds += 1
            self._queued_at[key] = _now()
            self._queued.release()
        elif present <= lane:
            return
        else:
            self._leave(key, present)
        self._lanes.setdefault(lane, OrderedDict())[key] = None
        self._lane_of[key] = lane

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

    def cancel_delay(self, key: K) -> None:
        """Forget that a key is to be queued later."""
        known = self._delayed.pop(key, None)
        if known is not None:
            known.cancel()

    def add_rate_limited(self, key: K, most: float = math.inf) -> None:
        """Queue a key that failed, after its backoff, or after ``most`` seconds."""
        self.retries += 1
        # 2**64 outgrows every `last`; a larger exponent would overflow some day.
        wait = min(most, self._last, self._first * 2.0 ** min(self._failures[key], 64))
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
        await self._queued.acquire()
        if self._closed:
            self._queued.release()  # for the next who waits
            raise QueueClosedError
        lane = self._turn()
        key = next(iter(self._lanes[lane]))
        self._leave(key, lane)
        now = _now()
        self.on_taken(now - self._queued_at.pop(key))
        self._taken_at[key] = now
        return key

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
        self._queued.release()

    def _turn(self) -> _Lane:
        first = min(self._lanes)
        second = first[0], True
        if second == first or second not in self._lanes:
            return first
        self._passed = (self._passed + 1) % TURN
        return first if self._passed else second

    def _leave(self, key: K, lane: _Lane) -> None:
        del self._lane_of[key]
        del self._lanes[lane][key]
        if not self._lanes[lane]:
            del self._lanes[lane]

    def _due(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
