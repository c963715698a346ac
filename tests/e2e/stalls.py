"""Records when the lab's API server, or the whole machine, stood still.

A program that leads stops when it cannot renew its Lease: where the API server does not answer
for seconds, a restart is what should happen. Only this record excuses one.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, Self

ASK_SECONDS: Final = 0.5
STALL_SECONDS: Final = 3.0
"""Renewals are tried more often than that, and one attempt has less time than that."""
GRACE_SECONDS: Final = 10.0
"""How long after a stall a program may end because of it."""


class Stalls:
    """Asks the API server twice a second while it is entered as a context.

    Args:
        ask: one request; raises an exception where there is no answer.
        clock: seconds since the epoch.

    Attributes:
        spans: the begin and end of each stall, in seconds since the epoch.
        answers: how often there was an answer.
    """

    def __init__(self, ask: Callable[[], object], clock: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._clock = clock
        self._answered_at = clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.spans: list[tuple[float, float]] = []
        self.answers = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def excused(self, log: str) -> int:
        """How often a program ended, by its log, because it could not renew its Lease in a stall.

        Args:
            log: JSON lines, of several lives of the program, also twice the same; other lines do
                not count.
        """
        return sum(self._in_a_stall(moment) for moment in set(_lease_losses(log)))

    def seconds_between(self, began: float, ended: float) -> float:
        """How many seconds of a time, in seconds since the epoch, the API server stood still."""
        return sum(max(0.0, min(ended, end) - max(began, start)) for start, end in self.spans)

    def look(self) -> None:
        """Ask once."""
        try:
            self._ask()
        except Exception:  # noqa: BLE001 - no answer, whatever the reason
            return
        self._note()
        self.answers += 1

    def _watch(self) -> None:
        while not self._over.wait(ASK_SECONDS):
            self.look()

    def _note(self) -> None:
        now = self._clock()
        if now - self._answered_at >= STALL_SECONDS:
            self.spans.append((self._answered_at, now))
        self._answered_at = now

    def _in_a_stall(self, moment: float) -> bool:
        return any(began <= moment <= ended + GRACE_SECONDS for began, ended in self.spans)


def _lease_losses(log: str) -> Iterator[float]:
    for line in log.splitlines():
        try:
            said = json.loads(line)
            if said["event"] == "cannot go on" and "not renewed" in said["error"]:
                yield datetime.fromisoformat(said["timestamp"]).timestamp()
        except (ValueError, KeyError, TypeError):
            continue
