"""Virtual time: waiting takes none, and what never comes is noticed at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


def run_virtual(main: Coroutine[Any, Any, T], *, end: float = 86400.0) -> T:
    """Run a coroutine in an event loop whose time starts at 0 and jumps over all waiting.

    Args:
        main: what to run.
        end: virtual seconds after which the loop gives up with a TimeoutError.
    """
    # Nothing comes from outside the loop: one idle turn shows that all have done what they can.
    with asyncio.Runner(
        loop_factory=lambda: looptime.new_event_loop(start=0, end=end, noop_cycles=1)
    ) as runner:
        return runner.run(main)


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: it did not within that many (virtual) seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"not so within {seconds:g} s"
        await asyncio.sleep(0.05)
