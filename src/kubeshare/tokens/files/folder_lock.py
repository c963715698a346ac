"""Locks a run folder, for its daemon or for mounting over it.

The node agent holds the lock of the folder that it mounts over, or of the one that it
unmounts. A daemon that has locked makes sure that the path still leads to the file that it
locked; from then on no mount comes between it and the folder.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final, NamedTuple

from kubeshare.tokens.files.run_folder import Paths

_TRIES: Final = 3


class AnotherDaemonError(Exception):
    """Another daemon already serves the run folder."""

    exit_code = 1


class UnmountedError(OSError):
    """This program sees a file system that the node agent has unmounted: it must start again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(errno.ESTALE, "unmounted by the node agent: start again", str(folder))


class FolderLock(NamedTuple):
    """The lock of a folder.

    Attributes:
        descriptor: holds the lock for as long as it is open.
        was_released: whether nobody held it before, or who did released it: it was not killed.
    """

    descriptor: int
    was_released: bool


def take(paths: Paths) -> FolderLock:
    """Make the folder and lock it.

    Raises:
        AnotherDaemonError: another daemon holds the lock.
        OSError: the folder cannot be made, or has been unmounted.
    """
    for _ in range(_TRIES):
        paths.make()
        lock = _open(paths.lock)
        if not _try(lock):
            pid = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise AnotherDaemonError(
                f"the token daemon with pid {pid} serves {paths.root} already: "
                "stop it first, or name another folder with --run-folder"
            )
        try:
            if _is_at(paths.lock, lock):
                check_mounted(paths)
                was_released = os.fstat(lock).st_size == 0
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
                return FolderLock(lock, was_released)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(errno.EAGAIN, "replaced each time that it was locked", str(paths.root))


def release(lock: FolderLock) -> None:
    """Release the lock; whoever takes it next knows that its holder was not killed."""
    os.ftruncate(lock.descriptor, 0)
    os.close(lock.descriptor)


def take_unserved(paths: Paths) -> int | None:
    """Lock the folder, which exists, if no daemon serves it; returns the descriptor to close."""
    lock = _open(paths.lock)
    if _try(lock):
        return lock
    os.close(lock)
    return None


def check_mounted(paths: Paths) -> None:
    """Check that this program does not see what the node agent has unmounted.

    Raises:
        UnmountedError: it does. A program whose container starts now sees the folder of the node.
    """
    if paths.unmounted.exists():
        raise UnmountedError(paths.root)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False
