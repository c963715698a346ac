"""Runs coroutines in virtual time, where waiting takes none."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


def run_virtual(main: Coroutine[Any, Any, T], *, end: float = 86400.0) -> T:
    """Run a coroutine in an event loop whose time starts at 0 and jumps over all waiting.

    After ``end`` virtual seconds the loop gives up with a TimeoutError.
    """
    # Nothing arrives from outside the loop, so the idle cycle in which looptime decides to move
    # its time shows that every task waits.
    with asyncio.Runner(
        loop_factory=lambda: looptime.new_event_loop(start=0, end=end, noop_cycles=0)
    ) as runner:
        return runner.run(main)


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: it does not hold within so many (virtual) seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"not so within {seconds:g} s"
        await asyncio.sleep(0.05)
