"""One agent a node at a time.

A pod that was deleted by force is gone from the cluster while its process still
ends, and the next agent may start beside it. The old one would take the new one's
sockets away as it ends, and write grants that the new one does not know of; so the
new one waits for it.
"""

import asyncio
import fcntl
import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.1


async def acquire(path: Path) -> int:
    """Wait until no other process holds the lock, and hold it.

    Args:
        path: of the lock file, which stays; its folder is made where it is missing.

    Returns:
        The descriptor that holds it: until it is closed, or this process ends in any way.
    """
    descriptor = _open(path)
    if not _try(descriptor):
        log.info("another agent of this node is still ending", lock=str(path))
        while not _try(descriptor):  # noqa: ASYNC110 - another process sets no Event of ours
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
