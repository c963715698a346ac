"""Runs coroutines in virtual time, where waiting takes none."""

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")

_POLL_SECONDS = 0.05


class _Selector(selectors.DefaultSelector):
    """Asks the kernel for news only if something but the loop's own pipe is registered.

    Who writes into that pipe has given the loop its callback before, to wake it if it sleeps.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and len(self.get_map()) == 1:
            return []
        return super().select(timeout)


class VirtualLoop(looptime.LoopTimeEventLoop, asyncio.SelectorEventLoop):
    """An event loop whose time jumps over all waiting."""

    # Of asyncio's BaseEventLoop, which names them nowhere else.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def idle_seconds(self) -> float:
        """How long nothing but the caller runs: until the next timer, infinite without one."""
        if self._ready:
            return 0.0
        return self._scheduled[0].when() - self.time() if self._scheduled else math.inf


def run_virtual(main: Coroutine[Any, Any, T], *, end: float | None = 86400.0) -> T:
    """Run a coroutine in an event loop whose time starts at 0 and jumps over all waiting.

    After ``end`` virtual seconds, if given, the loop gives up with a TimeoutError.
    """
    # Nothing arrives from outside the loop, so the idle cycle in which looptime decides to move
    # its time shows that every task waits.
    with asyncio.Runner(
        loop_factory=lambda: VirtualLoop(_Selector(), start=0, end=end, noop_cycles=0)
    ) as runner:
        return runner.run(main)


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait until a condition holds, which is looked at twenty times a second.

    Raises:
        AssertionError: it does not hold within so many (virtual) seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        left = end - loop.time()
        assert left > 0, f"not so within {seconds:g} s"
        await asyncio.sleep(_POLL_SECONDS * _polls(loop, left))


def _polls(loop: asyncio.AbstractEventLoop, left: float) -> int:
    """After how many intervals to look again: in virtual time nothing changes before a timer."""
    if not isinstance(loop, VirtualLoop):
        return 1
    return max(1, math.ceil(round(min(loop.idle_seconds(), left) / _POLL_SECONDS, 6)))
