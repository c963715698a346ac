"""Writes an archive of bounded size, and lists what it lacks."""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "kubeshare-must-gather"
"""All files are in it."""
LEFT_OUT: Final = "left-out.txt"


class Archive:
    """A gzipped tar that is being written; :func:`open_archive` makes one.

    Args:
        tar: takes the files.
        limit_bytes: the most bytes of content.
        moment: seconds since the epoch, the time of all files.

    Attributes:
        left_out: a line for each thing that is not in it.
    """

    def __init__(self, tar: tarfile.TarFile, limit_bytes: int, moment: int) -> None:
        self._tar = tar
        self._left_bytes = limit_bytes
        self._moment = moment
        self.left_out: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        """Add a file, or note that there is no room for it."""
        if len(content) > self._left_bytes:
            self.leave_out(name, f"{len(content)} bytes are more than there is room for")
            return
        self._left_bytes -= len(content)
        self._write(name, content)

    def leave_out(self, name: str, why: str) -> None:
        """Note that something is not there."""
        self.left_out.append(f"{name}: {why}")

    def close(self, always: str) -> None:
        """Add the list of what is not there, whatever room is left.

        Args:
            always: what is in no archive, for people.
        """
        lines = [always, "", *(self.left_out or ["Nothing else."])]
        self._write(LEFT_OUT, ("\n".join(lines) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(f"{FOLDER}/{name}")
        member.size, member.mtime, member.mode = len(content), self._moment, 0o600
        self._tar.addfile(member, io.BytesIO(content))


@contextmanager
def open_archive(path: Path, limit_bytes: int, moment: int) -> Iterator[Archive]:
    """Write an archive that only its owner can read; nothing is left of one that fails.

    Raises:
        OSError: it cannot be written there.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        # A file that is there may be another's, whom its mode would let read this one.
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            yield Archive(tar, limit_bytes, moment)
        unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
