"""Reads descriptors until the event loop has something else to do.

A loop of asyncio takes as long to wake up and to call one reader as the daemon takes to decide
what follows, and a handover is nothing but readers: of the timer, and of the processes' messages.
So these are waited for and called below asyncio, which goes on when a descriptor of its own is
ready, when its time has come, or when a reader has scheduled something on it.
"""

import select
import time
from collections.abc import Callable
from typing import Final

_AT_ONCE: Final = 64


class Readers:
    """Waits in the place of an event loop.

    Args:
        others: a descriptor that is readable when one of the event loop's own is ready.
        on_error: called with what a reader raised.
    """

    def __init__(self, others: int, on_error: Callable[[Exception], None]) -> None:
        self._others = others
        self._on_error = on_error
        self._is_interrupted = False
        self._readers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._epoll = select.epoll()
        self._epoll.register(others, select.EPOLLIN)

    def add(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        """Call ``callback(*args)`` as long as a descriptor is readable."""
        if fd not in self._readers:
            self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = callback, args

    def remove(self, fd: int) -> bool:
        """Wait for a descriptor no more; whether it was waited for."""
        if self._readers.pop(fd, None) is None:
            return False
        self._epoll.unregister(fd)
        return True

    def interrupt(self) -> None:
        """Have `serve` return once the readers have been called that are ready now."""
        self._is_interrupted = True

    def serve(self, timeout: float | None) -> bool:
        """Call readers for up to ``timeout`` seconds, without one until interrupted.

        Returns whether one of the event loop's own descriptors is ready.
        """
        self._is_interrupted = False
        until = None if timeout is None else time.monotonic() + timeout
        left = -1.0 if timeout is None else timeout
        while True:
            has_others = self._call(self._epoll.poll(left, _AT_ONCE))
            if has_others or self._is_interrupted:
                return has_others
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    return False

    def close(self) -> None:
        """Wait for nothing any more."""
        self._epoll.close()

    def _call(self, ready: list[tuple[int, int]]) -> bool:
        has_others = False
        for fd, _ in ready:
            if fd == self._others:
                has_others = True
                continue
            found = self._readers.get(fd)
            if found is None:  # removed by a reader before it
                continue
            callback, args = found
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001  it must not end the event loop
                self._on_error(error)
        return has_others
