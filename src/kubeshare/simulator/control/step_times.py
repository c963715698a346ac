"""Measures how long a program keeps its event loop from anything else.

A step is what runs between two awaits. While it runs, no Lease is renewed and no probe answered.
"""

import asyncio
import time
from asyncio import events
from collections.abc import Callable
from functools import wraps
from heapq import nlargest
from typing import Any, Final, NamedTuple, Self

GOAL_SECONDS: Final = 0.05
"""The most processor time that a step of a program should take."""


class Step(NamedTuple):
    """A step that was measured: its processor time in seconds, and what took it."""

    seconds: float
    what: str


class StepTimes:
    """Measures the steps of all event loops while it is entered, but for those of its own task.

    Args:
        at_least: shorter steps are not kept, in seconds.

    Attributes:
        steps: the longer ones, in order.
        count: how many steps there were.
    """

    def __init__(self, at_least: float = GOAL_SECONDS / 5) -> None:
        self.steps: list[Step] = []
        self.count = 0
        self._at_least = at_least
        self._excluded = 0.0
        self._own: asyncio.Task[Any] | None = None

    def longest(self, count: int = 5) -> list[Step]:
        """The longest steps, the longest first."""
        return nlargest(count, self.steps)

    def exclude(self, owner: object, method: str) -> None:
        """Do not count the time in a method of an object, such as a server in the same loop."""
        original: Callable[..., Any] = getattr(owner, method)

        @wraps(original)
        def excluded(*args: Any, **more: Any) -> Any:
            began = time.thread_time()
            try:
                return original(*args, **more)
            finally:
                self._excluded += time.thread_time() - began

        setattr(owner, method, excluded)

    def __enter__(self) -> Self:
        self._own = asyncio.current_task()
        self._original: Callable[[events.Handle], None] = events.Handle._run  # noqa: SLF001
        measure, original = self._measure, self._original

        def run(handle: events.Handle) -> None:
            measure(handle, original)

        events.Handle._run = run  # type: ignore[method-assign, assignment]  # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        events.Handle._run = self._original  # type: ignore[method-assign, assignment]  # noqa: SLF001

    def _measure(self, handle: events.Handle, run: Callable[[events.Handle], None]) -> None:
        callback: Any = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
        self._excluded = 0.0
        began = time.thread_time()
        run(handle)
        seconds = time.thread_time() - began - self._excluded
        task = getattr(callback, "__self__", None)
        if task is self._own:
            return
        self.count += 1
        if seconds >= self._at_least:
            self.steps.append(Step(seconds, _name(callback, task)))


def _name(callback: object, task: object) -> str:
    """The task and the coroutines in which it waits now, the outermost first."""
    if not isinstance(task, asyncio.Task):
        return repr(callback)
    names: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and hasattr(waiting, "cr_await"):
        names.append(waiting.__qualname__)
        waiting = waiting.cr_await
    return f"{task.get_name()}: {' > '.join(names)}"
