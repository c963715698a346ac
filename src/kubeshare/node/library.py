"""The device library's place on the node, from where containers mount it.

It lies under a folder named by its content, so that an upgrade of the agent never
changes the file under a running container, and comes there by rename, so that it is
never seen half written. ``/run`` is often mounted noexec: from there the dynamic
loader would only warn and the program would run unlimited, so that it can be
executed from where it lies is proven before any container gets it.
"""

import hashlib
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kubeshare.node.paths import CONTAINER_LIBRARY


class LibraryError(Exception):
    """The device library cannot be used from its folder; the message says why."""


@dataclass(frozen=True)
class InstalledLibrary:
    """Paths on the host of the library and of the ``ld.so.preload`` that names it."""

    library: Path
    preload: Path


def install(source: Path, folder: Path) -> InstalledLibrary:
    """Put the library where containers can mount it, and prove that it can be executed there.

    Args:
        source: the library as the image has it.
        folder: the node's folder for libraries, on a file system that allows execution.

    Raises:
        LibraryError: the folder cannot be written, or nothing can be executed from it.
    """
    try:
        content = source.read_bytes()
        place = folder / hashlib.sha256(content).hexdigest()[:16]
        place.mkdir(parents=True, exist_ok=True)
        installed = InstalledLibrary(place / source.name, place / "ld.so.preload")
        _write(installed.library, content, 0o755)
        _write(installed.preload, f"{CONTAINER_LIBRARY}\n".encode(), 0o644)
    except OSError as error:
        raise LibraryError(f"the device library cannot be installed: {error}") from error
    _prove_executable(installed.library)
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


def _prove_executable(library: Path) -> None:
    # Mapping it executable is what the loader does, and what noexec refuses.
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
            f"{library} cannot be executed from where it lies ({error.strerror}): "
            "its file system is mounted noexec; give /var/lib/kubeshare one that is not, "
            "since from a noexec one containers would run unlimited"
        ) from error
