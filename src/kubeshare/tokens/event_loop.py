"""The token daemon's event loop: asyncio's, with readers called below it."""

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import Protocol, TypeAlias, TypeVarTuple

from kubeshare.tokens.wire.readers import Readers

_Arguments = TypeVarTuple("_Arguments")


class _File(Protocol):
    def fileno(self) -> int: ...


_Descriptor: TypeAlias = int | _File


class _Selector(selectors.EpollSelector):
    """Waits for what asyncio itself waits for; meanwhile the readers are called."""

    readers: Readers

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0) if self.readers.serve(timeout) else []


class EventLoop(asyncio.SelectorEventLoop):
    """Calls what `add_reader` is given without a handle for each call (`Readers`).

    All else is asyncio's: signals, streams, timers and threads. What a reader schedules on
    the loop runs once the readers that are ready now have been called.
    """

    def __init__(self) -> None:
        selector = _Selector()
        self._readers = selector.readers = Readers(selector.fileno(), self._on_error)
        super().__init__(selector)

    def add_reader(
        self,
        fd: _Descriptor,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
    ) -> None:
        """Call ``callback(*args)`` as long as a descriptor is readable."""
        self._readers.add(_fileno(fd), callback, *args)

    def remove_reader(self, fd: _Descriptor) -> bool:
        """Wait for a descriptor no more; whether it was waited for."""
        return self._readers.remove(_fileno(fd))

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call back once, as soon as the readers have been called that are ready now."""
        self._readers.interrupt()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a time, which may be before the one that is waited for now."""
        self._readers.interrupt()
        return super().call_at(when, callback, *args, context=context)

    def close(self) -> None:
        """Close it, and what it waits for."""
        super().close()
        self._readers.close()

    def _on_error(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a reader failed", "exception": error})


def _fileno(fd: _Descriptor) -> int:
    return fd if isinstance(fd, int) else fd.fileno()
