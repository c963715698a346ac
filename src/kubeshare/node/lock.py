"""Ensures that one agent runs on a node at a time.

A pod that was deleted by force is gone from the cluster while its process may still be
ending, and the next agent may start beside it. The old one would remove the new one's
sockets as it ends, and write grants that the new one does not know; so the new one waits
until it has ended.
"""

import asyncio
import fcntl
import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.1


async def acquire(path: Path) -> int:
    """Wait until no other process holds the lock, and acquire it.

    The lock file stays; its folder is created if necessary.

    Returns:
        The descriptor that holds the lock until it is closed or this process ends.
    """
    descriptor = _open(path)
    if not _try(descriptor):
        log.info("another agent of this node is still ending", lock=str(path))
        while not _try(descriptor):  # noqa: ASYNC110 - another process cannot set an Event of ours
            await asyncio.sleep(_PAUSE_SECONDS)
    return descriptor


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
