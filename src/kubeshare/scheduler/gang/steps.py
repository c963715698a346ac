"""Goes through many members without keeping others from the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 32
"""Members that are gone through before other tasks run: some milliseconds."""


async def in_steps(members: Iterable[T]) -> AsyncIterator[T]:
    """The members, with a pause for other tasks after each :data:`AT_ONCE` of them.

    What is read of the cluster may change in a pause, so nothing must be concluded from all of them
    that a conditional write does not check.
    """
    for number, member in enumerate(members, 1):
        yield member
        if not number % AT_ONCE:
            await asyncio.sleep(0)
