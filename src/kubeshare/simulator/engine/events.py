"""A heap of events, from which outdated ones are dropped."""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

FEW: Final = 1024
"""As many are kept without a look at which of them are outdated."""


class Event(NamedTuple):
    """What happens, and when; events of one time in the order of their kinds, then as pushed.

    Attributes:
        time: in seconds.
        kind: a number.
        number: in the order of pushes.
        key: of which job or node.
        version: of the job: an event of another version is outdated.
    """

    time: float
    kind: int
    number: int
    key: str
    version: int


class Events:
    """The events that are to come.

    Args:
        is_valid: whether an event is not outdated; asked when it is due, and of all when there
            are many, so that as many stay in memory as are valid, or ``FEW``.
    """

    def __init__(self, is_valid: Callable[[Event], bool]) -> None:
        self._is_valid = is_valid
        self._heap: list[Event] = []
        self._numbers = count()
        self._compact_at = FEW

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time: float, kind: int, key: str, version: int = 0) -> None:
        """Add an event."""
        heappush(self._heap, Event(time, kind, next(self._numbers), key, version))
        if len(self._heap) > self._compact_at:
            self._heap = list(filter(self._is_valid, self._heap))
            heapify(self._heap)
            self._compact_at = max(FEW, 2 * len(self._heap))

    def pop(self, until: float = math.inf) -> Event | None:
        """Remove the first event, if it is due by a time."""
        while self._heap and self._heap[0].time <= until:
            event = heappop(self._heap)
            if self._is_valid(event):
                return event
        return None
