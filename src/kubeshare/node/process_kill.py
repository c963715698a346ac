"""End one process, and never another that has got its pid meanwhile."""

import os
import signal
from collections.abc import Callable

from kubeshare.tokens.files.grants import process_start_time


def kill(pid: int, started: int, still: Callable[[], bool]) -> bool:
    """Send SIGKILL to a process, if it is still the one that was meant.

    Args:
        pid: as it was seen.
        started: clock ticks from boot to its start, as they were seen.
        still: asked once the process is held by a descriptor, so that its pid cannot be
            another's from here on: whether it is still to be ended.

    Returns:
        whether it was sent.
    """
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if process_start_time(pid) != started or not still():
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        return False
    else:
        return True
    finally:
        os.close(held)
