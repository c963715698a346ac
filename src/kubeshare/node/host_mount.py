"""Mounts a tmpfs in the mount namespace of another process.

A program of its own: a mount that a container makes is its own, so this enters that of a process
outside, which a process with several threads cannot (setns(2)). Usage: ``PID mount TARGET
OPTIONS`` or ``PID unmount TARGET``; exit code 1 with the reason on stderr. What is unmounted keeps
a file that says so: a program whose container is being made may see it to its end.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from kubeshare.tokens.files.run_folder import Paths

SOURCE: Final = "kubeshare"
"""What mountinfo names as the source of these mounts."""

_CLONE_NEWNS: Final = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH: Final = 2


def main() -> None:
    """Do what the command line says."""
    pid, action, target, *options = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    _check(libc.setns(namespace, _CLONE_NEWNS), "setns")
    if action == "unmount":
        _unmount(libc, Path(target))
        return
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    data = os.fsencode(",".join(options))
    _check(libc.mount(SOURCE.encode(), os.fsencode(target), b"tmpfs", flags, data), action)


def _unmount(libc: ctypes.CDLL, target: Path) -> None:
    unmounted = Paths(target).unmounted
    unmounted.touch()
    try:
        _check(libc.umount2(os.fsencode(target), _MNT_DETACH), "unmount")
    except BaseException:
        unmounted.unlink()
        raise


def _check(result: int, what: str) -> None:
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
