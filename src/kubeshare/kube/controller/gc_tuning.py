"""Tunes the garbage collector for programs with large, long-lived state.

A collection of all that a program knows about a large cluster takes a tenth of a second, during
which nothing else runs. So there is none while its stores are filled, and what lives then is not
looked at again.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

PAUSE_SECONDS: Final = 120.0
"""Longest time without collections, in seconds."""


class _LiveObjects:
    """Excludes live objects from later collections."""

    def __init__(self) -> None:
        self._frozen = False

    def freeze(self) -> None:
        """Exclude all live objects from later collections.

        From the second call on, those that were excluded before are collected first: some may be
        garbage by now.
        """
        if self._frozen:
            gc.unfreeze()
            gc.collect()
        self._frozen = True
        gc.freeze()


freeze_live_objects: Final = _LiveObjects().freeze


@asynccontextmanager
async def collections_paused(
    wait_until_filled: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Collect nothing until the stores are filled, then exclude what lives, and collect again."""

    async def resume() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_SECONDS):
                await wait_until_filled()
            gc.freeze()
        gc.enable()

    gc.disable()
    task = asyncio.create_task(resume())
    try:
        yield
    finally:
        task.cancel()
        gc.enable()
