"""Tunes the garbage collector for programs with large, long-lived state.

A collection of all that a program knows about a large cluster takes a tenth of a second, during
which nothing else runs. So there is none while its stores are filled and what it computes from them
at first is built, and what lives then is not looked at again.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

PAUSE_SECONDS: Final = 120.0
"""Longest time without collections, in seconds."""
COLLECT_SECONDS: Final = 5.0
"""Seconds between collections while it takes longer than that to fill the stores."""


def freeze_live_objects() -> None:
    """Exclude all live objects from later collections.

    What was excluded before stays so: to look at it for garbage takes as long as a collection of
    everything. So whatever is large and replaced must refer to itself nowhere.
    """
    gc.freeze()


class _Pauses:
    """Postpones collections while anybody asks for it."""

    def __init__(self) -> None:
        self._count = 0

    def begin(self) -> Callable[[], None]:
        """Collect nothing until the returned function is called; further calls of it do nothing."""
        self._count += 1
        gc.disable()
        ended = False

        def end() -> None:
            nonlocal ended
            self._count -= not ended
            ended = True
            if not self._count:
                gc.enable()

        return end


_pauses: Final = _Pauses()


@contextmanager
def collections_postponed() -> Iterator[None]:
    """Collect nothing inside, for :data:`PAUSE_SECONDS` at most; what lives then is excluded."""
    end = _pauses.begin()

    def end_early() -> None:
        gc.freeze()
        end()

    timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, end_early)
    try:
        yield
    finally:
        timer.cancel()
        end()


@asynccontextmanager
async def collections_paused(
    wait_until_filled: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Collect nothing until the stores are filled, then exclude what lives, and collect again.

    Where that takes longer than :data:`PAUSE_SECONDS`, there are collections from then on, and what
    lives after one is excluded from the next, until the stores are filled.
    """
    end = _pauses.begin()

    async def resume() -> None:
        filled = asyncio.ensure_future(wait_until_filled())
        try:
            await asyncio.wait([filled], timeout=PAUSE_SECONDS)
            gc.freeze()
            end()
            while not filled.done():
                await asyncio.wait([filled], timeout=COLLECT_SECONDS)
                gc.collect()
                gc.freeze()
        finally:
            filled.cancel()

    task = asyncio.create_task(resume())
    try:
        yield
    finally:
        task.cancel()
        end()
