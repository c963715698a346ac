"""The response body of a watch: one JSON line for each event."""

import asyncio
from collections.abc import AsyncIterator

import httpx2

from kubeshare.simulator.control.storage import Storage, Watcher


class WatchStream(httpx2.AsyncByteStream):
    """Sends the lines of a watcher until its lifetime ends or the watcher does.

    Args:
        storage: from which the watcher is removed when the client closes the stream.
        watcher: its queue holds lines; None ends the stream, an exception breaks it.
        lifetime: in seconds.
    """

    def __init__(self, storage: Storage, watcher: Watcher, lifetime: float) -> None:
        self._storage = storage
        self._watcher = watcher
        self._lifetime = lifetime

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._lifetime
        while True:
            try:
                async with asyncio.timeout_at(end):
                    line = await self._watcher.queue.get()
            except TimeoutError:
                return
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line

    async def aclose(self) -> None:
        """Stop watching."""
        if self._watcher in self._storage.watchers:
            self._storage.watchers.remove(self._watcher)
