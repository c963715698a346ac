"""Reports long steps: that they run, and how long they took.

Lines rather than a moving bar: they read the same on a terminal, in a log of
continuous integration and in pytest's captured output.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_HEARTBEAT_SECONDS = 15.0


def spell_seconds(seconds: float) -> str:
    """A duration as people write it: ``0.3 s``, ``47 s``, ``7 min 45 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Progress:
    """Writes one line when a step ends and one now and then while it runs.

    Args:
        stream: where to; standard error by default, so that standard output
            keeps what a script wants to read.
        quiet: write nothing but long steps' signs of life.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Write one line, atomically between threads."""
        with self._lock:
            stream = self._stream or sys.stderr
            stream.write(f"lab: {line}\n")
            stream.flush()

    @contextmanager
    def step(self, title: str, detail: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Time a step; every 15 s report that it still runs, with ``detail()``."""
        started = time.monotonic()
        ended = threading.Event()

        def heartbeat() -> None:
            while not ended.wait(_HEARTBEAT_SECONDS):
                spent = spell_seconds(time.monotonic() - started)
                self.say(f"{title} … {spent}{', ' + detail() if detail() else ''}")

        thread = threading.Thread(target=heartbeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if not self._quiet:
            self.say(f"{title}: {spell_seconds(time.monotonic() - started)}")
