"""Kills one process, and never another one that reuses its pid."""

import os
import signal
from collections.abc import Callable

from kubeshare.tokens.files.grants import process_start_time


def kill(pid: int, started: int, confirm: Callable[[], bool]) -> bool:
    """Send SIGKILL to a process, unless its pid was reused.

    Args:
        pid: of the process.
        started: clock ticks from boot to its start.
        confirm: whether it is still to be killed; called once a descriptor holds the
            process, so that its pid cannot be reused from then on.

    Returns:
        whether the signal was sent.
    """
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if process_start_time(pid) != started or not confirm():
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        return False
    else:
        return True
    finally:
        os.close(held)
