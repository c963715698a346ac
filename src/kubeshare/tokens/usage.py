"""Keeps what the processes of all claims say they use.

Containers write these files and lock them, so what a read costs is up to them. A thread beside the
event loop reads them, once a second at most, and whoever asks waits for it no longer than
`WAIT_SECONDS`: then the last values have to do.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from kubeshare.tokens.files import counters
from kubeshare.tokens.files.counters import NO_USAGE, CountersReader, Usage
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import CELLS_MAX

FRESH_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 2.0

_NOTHING: Final = (NO_USAGE,) * CELLS_MAX


class UsageCache:
    """The usage of the claims of one run folder."""

    def __init__(self, paths: Paths) -> None:
        self._reader = CountersReader(paths)
        self._usage: dict[str, tuple[Usage, ...]] = {}
        self._reading: asyncio.Future[dict[str, tuple[Usage, ...]]] | None = None
        self._stale_at = float("-inf")

    def of(self, claim: str) -> tuple[Usage, ...]:
        """What a claim used at the last read, by cell."""
        return self._usage.get(claim, _NOTHING)

    def skipped(self) -> int:
        """How many claims are left out now because reading them takes too long."""
        return self._reader.skipped()

    async def refresh(self, claims: Collection[str]) -> None:
        """Read the usage of these claims, unless it was read a moment ago."""
        if self._reading is None:
            if asyncio.get_running_loop().time() < self._stale_at:
                return
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._read, tuple(claims)))
            self._reading.add_done_callback(self._take)
        await asyncio.wait([self._reading], timeout=WAIT_SECONDS)

    def _read(self, claims: Collection[str]) -> dict[str, tuple[Usage, ...]]:
        return {
            claim: tuple(counters.usage(found))
            for claim in claims
            if (found := self._reader.processes(claim))
        }

    def _take(self, reading: asyncio.Future[dict[str, tuple[Usage, ...]]]) -> None:
        self._reading = None
        if not reading.cancelled():
            self._usage = reading.result()
            self._stale_at = asyncio.get_running_loop().time() + FRESH_SECONDS
