"""A network of its own for a browser, its tests and what they serve to it.

Chromium gives up whatever it loads when an address of the machine changes
(``ERR_NETWORK_CHANGED``), and a lab that runs beside these tests changes them all the time.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000


@contextmanager
def loopback_alone() -> Iterator[None]:
    """What this thread starts has a loopback interface alone, and shares it.

    Without the right to make one it stays where it is: then no lab runs beside it either.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), f"cannot {what}")

    with Path("/proc/thread-self/ns/net").open() as before:
        check(libc.unshare(_CLONE_NEWNET), "make a network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            check(libc.setns(before.fileno(), _CLONE_NEWNET), "return to the network before")
