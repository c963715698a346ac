"""Watches the processes of `kubeshare run` that own grants.

A pidfd reports the end of a process, whichever process is its parent, and is not confused
by a reused pid.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from kubeshare.tokens.files.grants import Grant, Owner, process_start_time


def holder_name(grant: Grant) -> str:
    """The holder's name for people: the pod, or the present name of the command."""
    if grant.owner is None:
        return grant.holder
    try:
        command = Path(f"/proc/{grant.owner.pid}/comm").read_text().strip()
    except OSError:
        command = "ended"
    return f"{command} ({grant.owner.pid})"


class Owners:
    """Watches the owners of claims; calls `on_gone` once with the claim's name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._pidfds: dict[str, int] = {}

    def watch(self, claim: str, owner: Owner) -> bool:
        """Watch the owner of a claim; False if it has already ended."""
        try:
            pidfd = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            return False
        # From here on the pid cannot be reused: the descriptor is open.
        if process_start_time(owner.pid) != owner.start_time:
            os.close(pidfd)
            return False
        self._pidfds[claim] = pidfd
        self._loop.add_reader(pidfd, self._end, claim)
        return True

    def forget(self, claim: str) -> None:
        """Stop watching the owner of a claim; does nothing if it is not watched."""
        pidfd = self._pidfds.pop(claim, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Stop watching all owners."""
        for claim in list(self._pidfds):
            self.forget(claim)

    def _end(self, claim: str) -> None:
        self.forget(claim)
        self._on_gone(claim)
