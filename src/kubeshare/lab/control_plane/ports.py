"""Reserves ports of the loopback for programs that are started later.

A port that is free now may be taken before its program binds it: by another run of this code,
or by any connection that the kernel gives an ephemeral port. So each port is below the ephemeral
range, and a lock on a file, which ends with this process, keeps it from other runs.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_BELOW_EPHEMERAL: Final = 10_000
"""From how many ports below the ephemeral range one is drawn."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 1024


def reserve_ports(count: int, folder: Path | None = None) -> list[int]:
    """Reserve so many free ports until this process ends.

    Args:
        count: how many.
        folder: where the locks are; all runs that must not meet share it.
    """
    where = folder or Path(tempfile.gettempdir()) / f"kubeshare-ports-{os.geteuid()}"
    where.mkdir(mode=0o700, exist_ok=True)
    first = int(_EPHEMERAL.read_text().split()[0])
    low = max(_LOWEST, first - _BELOW_EPHEMERAL)
    reserved: list[int] = []
    for port in random.SystemRandom().sample(range(low, first), first - low):
        if len(reserved) == count:
            break
        lock = _locked(where / str(port))
        if lock is None:
            continue
        if _is_free(port):
            reserved.append(port)
        else:
            os.close(lock)
    return reserved


def _locked(file: Path) -> int | None:
    """A descriptor that holds the lock of a file; None if another run holds it."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
