"""The processes on whose life grants hang: those of `kubeshare run`.

A pidfd says when a process is gone, whoever's child it was, and cannot be fooled
by a pid that is used again.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from kubeshare.tokens.files.grants import Grant, Owner, process_start_time


def holder_name(grant: Grant) -> str:
    """The holder's name for people: the pod, or what the command is called now."""
    if grant.owner is None:
        return grant.holder
    try:
        command = Path(f"/proc/{grant.owner.pid}/comm").read_text().strip()
    except OSError:
        command = "ended"
    return f"{command} ({grant.owner.pid})"


class Owners:
    """Watches processes for claims.

    Args:
        loop: the event loop.
        on_gone: told the claim's name, once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._pidfds: dict[str, int] = {}

    def watch(self, claim: str, owner: Owner) -> bool:
        """Be told of the owner's end; False when it has ended already."""
        try:
            pidfd = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            return False
        # The descriptor is open, so from here on the pid cannot be another process's.
        if process_start_time(owner.pid) != owner.start_time:
            os.close(pidfd)
            return False
        self._pidfds[claim] = pidfd
        self._loop.add_reader(pidfd, self._end, claim)
        return True

    def forget(self, claim: str) -> None:
        """Stop watching for a claim; nothing happens when that is not done."""
        pidfd = self._pidfds.pop(claim, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Stop watching."""
        for claim in list(self._pidfds):
            self.forget(claim)

    def _end(self, claim: str) -> None:
        self.forget(claim)
        self._on_gone(claim)
