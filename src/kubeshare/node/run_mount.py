"""Gives the run folder a bounded file system of its own.

Containers write to files of that folder (their counters), and on the host's ``/run`` they could
take the room of kubelet and container runtime. The node agent mounts a tmpfs there, in the mount
namespace of the node, so it outlives agent and token daemon and is found at each later start.

It is mounted only over a folder without grants and without a token daemon, because neither a
container nor the daemon would follow: the agent holds the daemon's lock of the folder meanwhile.
Where it cannot be mounted, all goes on without it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog
from prometheus_client import CollectorRegistry, Gauge

from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.node import host_mount
from kubeshare.node.claim_mounts import mountinfo_of
from kubeshare.tokens.files import folder_lock
from kubeshare.tokens.files.counters import FILE_BYTES_MAX
from kubeshare.tokens.files.run_folder import Paths

log = structlog.get_logger(__name__)

_GPUS: Final = 16
"""Of the largest machines. What is free costs no memory."""
_SMALL_FILES_BYTES: Final = 64 * 1024
"""Page, grant, tally and status of a claim, each of which takes a page of memory at least."""
_CLAIMS: Final = MAX_HOLDERS * _GPUS
SIZE_BYTES: Final = _CLAIMS * (FILE_BYTES_MAX + _SMALL_FILES_BYTES)
# Containers make no files in it, but may set attributes of their own (Linux 6.6), whose memory is
# charged to them: with a bound on inodes these would use it up for everybody (tmpfs(5)).
_OPTIONS: Final = f"mode=0700,size={SIZE_BYTES},nr_inodes=0"
_HOST: Final = 1
"""A process of the node itself, in the agent's PID namespace."""
_TIMEOUT_S: Final = 10.0


class MountError(Exception):
    """The run folder gets no file system of its own; the message says why."""


class InUseError(MountError):
    """The folder has grants or a token daemon."""


class Mount(NamedTuple):
    """A mount: the path in its file system, "/" for all of it, and the file system's source."""

    root: str
    source: str


class Mounter(Protocol):
    """Mounts at a folder of the node; blocks."""

    def mounted(self, folder: Path) -> Mount | None:
        """What is mounted there; None if nothing is."""
        ...

    def mount(self, folder: Path, options: str) -> None:
        """Mount a tmpfs.

        Raises:
            MountError: it cannot be mounted.
        """
        ...

    def unmount(self, folder: Path) -> None:
        """Leave the file `unmounted` in what is mounted there, and unmount it.

        Raises:
            MountError: it cannot be unmounted.
        """
        ...


class HostMounter:
    """Mounts in the mount namespace of a process of the node."""

    def __init__(self, pid: int = _HOST) -> None:
        self._pid = pid

    def mounted(self, folder: Path) -> Mount | None:  # noqa: D102 - of the protocol
        found = None
        for line in mountinfo_of(self._pid).splitlines():
            before, _, after = line.partition(" - ")
            fields, of_file_system = before.split(" "), after.split(" ")
            # The last line may be cut off: of a long table only the beginning is read.
            if len(of_file_system) > 1 and fields[4] == str(folder):
                found = Mount(fields[3], of_file_system[1])  # the last one covers the others
        return found

    def mount(self, folder: Path, options: str) -> None:  # noqa: D102 - of the protocol
        self._call("mount", str(folder), options)

    def unmount(self, folder: Path) -> None:  # noqa: D102 - of the protocol
        self._call("unmount", str(folder))

    def _call(self, action: str, *arguments: str) -> None:
        command = [sys.executable, "-m", host_mount.__name__, str(self._pid), action, *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise MountError(f"{action}: no answer within {_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise MountError(lines[-1])


def register(registry: CollectorRegistry, *, is_bounded: bool) -> None:
    """Register the metric that says whether the run folder has a file system of its own."""
    Gauge(
        "kubeshare_node_run_folder_bounded",
        "1 if the run folder has a file system of its own, so that containers cannot fill /run",
        registry=registry,
    ).set(is_bounded)


def provide(folder: Path, mounter: Mounter) -> str:
    """Mount the file system, unless it is mounted.

    Args:
        folder: the run folder, at the same path as on the node.
        mounter: of the node.

    Returns:
        why the folder has no bounded file system of its own; "" if it has.

    Raises:
        UnmountedError: this program's container began before an agent unmounted it.
    """
    why = ""
    try:
        _provide(Paths(folder), mounter)
    except InUseError as error:
        why = f"{error}: it is mounted at the next boot of the node"
    except folder_lock.UnmountedError:
        raise
    except (MountError, OSError) as error:
        why = str(error)
    if why:
        log.warning(
            "the run folder has no file system of its own: containers can fill that of the node",
            folder=str(folder),
            reason=why,
        )
    return why


def take_away(folder: Path, mounter: Mounter) -> None:
    """Unmount the file system if there is no grant and no token daemon, as at an uninstallation."""
    paths = Paths(folder)
    try:
        mounted = mounter.mounted(folder)
        if mounted is None or mounted.source != host_mount.SOURCE:
            return
        with _unserved(paths):
            mounter.unmount(folder)
        log.info("the run folder's file system is unmounted", folder=str(folder))
    except (MountError, OSError) as error:
        log.info("the run folder's file system stays mounted", reason=str(error))


def _provide(paths: Paths, mounter: Mounter) -> None:
    folder = paths.root
    mounted = mounter.mounted(folder)
    if mounted is not None:
        if mounted.source == host_mount.SOURCE:
            paths.unmounted.unlink(missing_ok=True)  # an agent was killed before it unmounted
        elif mounted.root != "/":
            raise MountError(f"{mounted.root} of {mounted.source} is mounted at {folder} already")
        return
    folder_lock.check_mounted(paths)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = folder.stat().st_dev
    with _unserved(paths):
        mounter.mount(folder, _OPTIONS)
        if folder.stat().st_dev == before:
            mounter.unmount(folder)
            raise MountError(f"mounts of the node at {folder} do not propagate to this program")
    log.info("the run folder has a file system of its own", folder=str(folder), options=_OPTIONS)


@contextmanager
def _unserved(paths: Paths) -> Iterator[None]:
    """Hold the token daemon's lock of the folder that is there now.

    Raises:
        InUseError: somebody uses the folder.
    """
    lock = folder_lock.take_unserved(paths)
    if lock is None:
        raise InUseError("a token daemon serves it")
    try:
        if paths.has_grants():
            raise InUseError("pods have grants in it")
        yield
    finally:
        os.close(lock)
