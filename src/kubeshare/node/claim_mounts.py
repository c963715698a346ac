"""Finds which claims a process has mounted.

The runtime mounts a claim's folder into every container that has the claim's CDI device,
whichever pod it is of. A container cannot remove the mount without privileges of the node.
The kernel lists it in ``/proc/PID/mountinfo`` with its file system and its path there, so
another folder at the same place is not mistaken for it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kubeshare.node.cgroups import parse_cgroup

_PROC: Final = Path("/proc")
_TEXT_MAX: Final = 1024 * 1024
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class _Mount(NamedTuple):
    """A line of mountinfo (proc_pid_mountinfo(5)).

    Attributes:
        device: ``MAJOR:MINOR`` of the file system.
        root: the mounted path within the file system.
        point: where it is mounted.
    """

    device: str
    root: str
    point: str


def mountinfo_of(pid: int, proc: Path = _PROC) -> str:
    """Read ``/proc/PID/mountinfo``.

    Raises:
        OSError: there is no such process.
    """
    with (proc / str(pid) / "mountinfo").open(errors="replace") as file:
        return file.read(_TEXT_MAX)


class ClaimMounts:
    """Recognizes the mounts of claims' folders.

    Args:
        claims: the folder with one folder for each claim.
        own: this process's mountinfo; by default from the kernel.
        proc: where the kernel shows processes.
    """

    def __init__(self, claims: Path, own: str | None = None, proc: Path = _PROC) -> None:
        self._claims = claims
        self._own = own
        self._proc = proc

    def in_mountinfo(self, text: str) -> tuple[str, ...]:
        """The claims that are mounted according to a process's mountinfo."""
        place = self._place()
        if place is None:
            return ()
        prefix = place.root.rstrip("/") + "/"
        found = (
            mount.root.removeprefix(prefix)
            for mount in _mounts(text)
            if mount.device == place.device and mount.root.startswith(prefix)
        )
        return tuple(dict.fromkeys(name for name in found if name and "/" not in name))

    def of_process(self, pid: int) -> tuple[str, ...]:
        """The claims that a process has mounted.

        Raises:
            OSError: there is no such process.
        """
        return self.in_mountinfo(mountinfo_of(pid, self._proc))

    def of_all_processes(self) -> dict[str, set[str]]:
        """The claims that any process of this machine has mounted; blocks.

        Returns: claim → the uids of the pods of such processes, as far as their cgroups say.
        """
        namespaces: set[str] = set()
        found: dict[str, set[str]] = {}
        for entry in self._proc.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):  # it has ended
                namespace = str((entry / "ns/mnt").readlink())
                if namespace not in namespaces:
                    for claim in self.of_process(int(entry.name)):
                        found.setdefault(claim, set()).update(_pod_of(entry / "cgroup"))
                    namespaces.add(namespace)
        return found

    def _place(self) -> _Mount | None:
        """File system and path there of the folder of claims; None if it is not mounted."""
        own = mountinfo_of(os.getpid()) if self._own is None else self._own
        best: _Mount | None = None
        for mount in _mounts(own):
            # The longest mount point has the folder; of equal ones, the last covers the others.
            if self._claims.is_relative_to(mount.point) and (
                best is None or len(mount.point) >= len(best.point)
            ):
                best = mount
        if best is None:
            return None
        inner = self._claims.relative_to(best.point)
        return best._replace(root=str(Path(best.root) / inner))


def _pod_of(cgroup: Path) -> tuple[str, ...]:
    """The uid of a process's pod; a container may create cgroups only within its own."""
    try:
        with cgroup.open() as file:
            return parse_cgroup(file.read(_TEXT_MAX)).pods[:1]
    except OSError:
        return ()


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        fields = line.split(" ", 5)
        if len(fields) > 5:
            yield _Mount(fields[2], _unescaped(fields[3]), _unescaped(fields[4]))


def _unescaped(path: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), path)
