"""Waits for other threads and programs, on a machine that may be busy with much else."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Found = TypeVar("Found")

DEADLINE_S: Final = 120.0
"""For what takes milliseconds where nothing else runs: only a test that fails waits so long."""


def eventually(
    question: Callable[[], Found | bool | None], what: str, seconds: float = DEADLINE_S
) -> Found:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.002)
