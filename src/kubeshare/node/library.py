"""Installs the device library on the node, where containers mount it.

Its folder is named after its content, so that an upgrade of the agent never changes the
file under a running container; it is written by rename, so that it is never half there.
From a file system that is mounted noexec, as ``/run`` often is, the dynamic loader would
only warn and the program would run unlimited. So the agent checks that the library can be
executed from its folder before any container gets it.
"""

import hashlib
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kubeshare.node.paths import CONTAINER_LIBRARY


class LibraryError(Exception):
    """The device library cannot be installed or executed; the message says why."""


@dataclass(frozen=True)
class InstalledLibrary:
    """The host's paths of the library and of the ``ld.so.preload`` that names it."""

    library: Path
    preload: Path


def install(source: Path, folder: Path) -> InstalledLibrary:
    """Install the library for containers to mount, and check that it can be executed there.

    Args:
        source: the library in the image.
        folder: the node's folder for libraries, on a file system that allows execution.

    Raises:
        LibraryError: the folder cannot be written, or nothing can be executed from it.
    """
    try:
        content = source.read_bytes()
        target = folder / hashlib.sha256(content).hexdigest()[:16]
        target.mkdir(parents=True, exist_ok=True)
        installed = InstalledLibrary(target / source.name, target / "ld.so.preload")
        _write(installed.library, content, 0o755)
        _write(installed.preload, f"{CONTAINER_LIBRARY}\n".encode(), 0o644)
    except OSError as error:
        raise LibraryError(f"the device library cannot be installed: {error}") from error
    _check_executable(installed.library)
    return installed


def _write(target: Path, content: bytes, mode: int) -> None:
    if target.is_file() and target.read_bytes() == content:
        return
    descriptor, draft = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    Path(draft).replace(target)


def _check_executable(library: Path) -> None:
    # The loader maps it executable, which noexec refuses.
    try:
        with (
            library.open("rb") as stream,
            mmap.mmap(
                stream.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
            ),
        ):
            pass
    except OSError as error:
        raise LibraryError(
            f"{library} cannot be executed from there ({error.strerror}): "
            "its file system is mounted noexec; give /var/lib/kubeshare one that is not, "
            "since from a noexec one containers would run unlimited"
        ) from error
