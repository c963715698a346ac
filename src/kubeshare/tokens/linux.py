"""Linux calls that Python 3.11 lacks: futex wake, timerfd, inotify."""

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_timerfd_settime = _libc.timerfd_settime
_FUTEX_NUMBER: Final = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
_FUTEX_WAKE: Final = 1
_ALL_WAITERS: Final = 2**31 - 1
_CLOCK_MONOTONIC: Final = 1
_TIMER_ABSOLUTE: Final = 1
_TIMER = struct.Struct("qqqq")
_CLOSE_ON_EXEC: Final = os.O_CLOEXEC
_NON_BLOCKING: Final = os.O_NONBLOCK

IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_UNMOUNT: Final = 0x2000
IN_IGNORED: Final = 0x8000
_REMOVED: Final = IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED
_EVENT = struct.Struct("iIII")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def futex_wake(address: ctypes.c_void_p) -> None:
    """Wake every process that waits on the shared 32-bit word at this address."""
    _checked(_syscall(_FUTEX_NUMBER, address, _FUTEX_WAKE, _ALL_WAITERS), "futex")


class Timer:
    """A timerfd: fires at an absolute time on CLOCK_MONOTONIC.

    An event loop's own timer rounds up to the next millisecond, which would delay the end
    of each lease. After it has fired, its descriptor stays readable until it is set again.
    """

    def __init__(self) -> None:
        self.fd = _checked(
            _libc.timerfd_create(_CLOCK_MONOTONIC, _CLOSE_ON_EXEC | _NON_BLOCKING), "timerfd_create"
        )

    def set(self, at_ns: int | None) -> None:
        """Fire once at this time, or at once if it has passed; None: never."""
        # All zeros would disarm it, so a time in the past becomes the first nanosecond.
        at = 0 if at_ns is None else max(1, at_ns)
        value = _TIMER.pack(0, 0, at // 1_000_000_000, at % 1_000_000_000)
        _checked(_timerfd_settime(self.fd, _TIMER_ABSOLUTE, value, None), "timerfd_settime")

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self.fd)


class FolderWatch:
    """Reports that files were renamed into or out of a folder, or that it was removed.

    It does not say which files: the reader scans the whole folder, so an overflow of the
    kernel's queue loses no file.
    """

    def __init__(self, folder: Path) -> None:
        self._is_removed = False
        self.fd = _checked(_libc.inotify_init1(_CLOSE_ON_EXEC | _NON_BLOCKING), "inotify_init1")
        events = IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF
        _checked(_libc.inotify_add_watch(self.fd, os.fsencode(folder), events), "inotify_add_watch")

    def clear(self) -> bool:
        """Discard the pending events; returns whether the folder has been removed.

        That another folder is at its path now changes nothing.
        """
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self.fd, 65536):
                self._is_removed |= _say_removed(events)
        return self._is_removed

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self.fd)


def _say_removed(events: bytes) -> bool:
    at, found = 0, 0
    while at < len(events):
        _, mask, _, name_bytes = _EVENT.unpack_from(events, at)
        found |= mask
        at += _EVENT.size + name_bytes
    return bool(found & _REMOVED)
