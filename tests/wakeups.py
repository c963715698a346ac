"""Measures how much of a window the machine woke its programs late.

A virtual machine stands still while its host runs others, and a loaded one wakes programs late.
The GPU idles while the job or the token daemon that has to act is not woken: that is not a fault
of the shares, so a window in which it happened is measured again, and what is lost all the same
widens its tolerance. On a machine that wakes its programs in time nothing is added.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar

T = TypeVar("T")

UNDISTURBED: Final = 0.02
"""The largest lost part of a window that is not measured again."""
MAX_WINDOWS: Final = 5
_SLEEP_SECONDS: Final = 0.004
_ON_TIME_SECONDS: Final = 0.001


class Wakeups:
    """Sleeps on every CPU, and records when it is woken late, while entered as a context."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._late: list[tuple[float, float]] = []
        cpus = sorted(os.sched_getaffinity(0))
        self._threads = [threading.Thread(target=self._watch, args=(cpu,)) for cpu in cpus]

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._ended = time.monotonic()

    @property
    def lost(self) -> float:
        """The part of the time, 0 to 1, in which some CPU should have run a thread and did not."""
        return self.lost_seconds / (self._ended - self._began)

    @property
    def lost_seconds(self) -> float:
        """The same in seconds."""
        return covered(self._late)

    def _watch(self, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})  # of this thread alone
        while not self._over.is_set():
            due = time.monotonic() + _SLEEP_SECONDS
            time.sleep(_SLEEP_SECONDS)
            now = time.monotonic()
            if now - due > _ON_TIME_SECONDS:
                self._late.append((due, now))


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds that lie within at least one of some spans of time."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def least_disturbed(measure: Callable[[], T]) -> tuple[T, float]:
    """Measure until the machine did not disturb it, a few times at most.

    Returns:
        what was measured in the least disturbed window, and the lost part of that window.
    """
    found: list[tuple[T, float]] = []
    while not found or (found[-1][1] > UNDISTURBED and len(found) < MAX_WINDOWS):
        with Wakeups() as wakeups:
            measured = measure()
        found.append((measured, wakeups.lost))
    return min(found, key=lambda each: each[1])
