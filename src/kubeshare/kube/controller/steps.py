"""Goes through many objects without keeping others from the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 32
"""Objects that are gone through before other tasks run: some milliseconds."""


async def in_steps(objects: Iterable[T]) -> AsyncIterator[T]:
    """The objects, with a pause for other tasks after each :data:`AT_ONCE` of them.

    What is read of the cluster may change in a pause, so nothing must be concluded from all of them
    that a conditional write does not check.
    """
    for number, each in enumerate(objects, 1):
        yield each
        if not number % AT_ONCE:
            await asyncio.sleep(0)
