"""Tells whether a process has a file mapped, by its maps."""

import os
import re
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TEXT_MAX: Final = 1024 * 1024
"""Some ten thousand mappings; a process of a large framework has some thousands."""


def has_mapped(pid: int, file: Path, proc: Path = _PROC) -> bool:
    """Whether ``/proc/PID/maps`` lists a file, by device and inode; False if either is gone."""
    try:
        status = file.stat()
        with (proc / str(pid) / "maps").open(errors="replace") as maps:
            text = maps.read(_TEXT_MAX)
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    # proc_pid_maps(5): range, permissions, offset, device, inode, path.
    line = rf"^[0-9a-f]+-[0-9a-f]+ \S+ [0-9a-f]+ {device} {status.st_ino}\s"
    return re.search(line, text, re.MULTILINE) is not None
