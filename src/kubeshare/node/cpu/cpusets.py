"""Reads and writes the CPU sets of containers in their cgroups.

Only cgroups that the container runtime made are found, by the pod's uid and the container's id
in their names: the search stops at a container, which may have cgroups of its own below. A set
that this program wrote has a mark, an extended attribute of the cgroup that only the node's root
can write and that ends with it. So each set is one of three: inherited from the pod, ours, or
another program's, which is never changed.

All of it blocks: run it in a thread.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpus import Cpus, format_cpu_list, read_cpu_list
from kubeshare.node.cgroups import container_in, pod_in

MARK: Final = "trusted.kubeshare.cpus"
"""The extended attribute with the set that was written, in the kernel's format."""

_MAX_FOLDERS: Final = 20_000
_MAX_PIDS: Final = 16
_TEXT_MAX: Final = 64 * 1024


class Cpuset(Struct, frozen=True, kw_only=True):
    """The CPU set of a container.

    Attributes:
        allowed: the CPUs of its pod.
        bound: the CPUs that it was bound to by this program; empty if it is not.
        foreign: the CPUs that another program has bound it to; empty if none has.
    """

    allowed: Cpus
    bound: Cpus = frozenset()
    foreign: Cpus = frozenset()


class Container(Struct, frozen=True):
    """The cgroup of a container.

    Attributes:
        pod: the uid of its pod.
        id: its id at the container runtime.
        folder: the cgroup in the hierarchy of the cpuset controller.
    """

    pod: str
    id: str
    folder: Path

    def pids(self) -> list[int]:
        """Some of its processes, in the cgroup itself or below."""
        found: list[int] = []
        for folder in _below(self.folder):
            text = _read(folder / "cgroup.procs")
            found += [int(line) for line in text.split() if line.isdecimal()]
            if len(found) >= _MAX_PIDS:
                break
        return found[:_MAX_PIDS]


class Cpusets:
    """The CPU sets of a machine.

    Args:
        root: where its cgroups are mounted, ``/sys/fs/cgroup``.
    """

    def __init__(self, root: Path) -> None:
        self._is_v2 = (root / "cgroup.controllers").exists()
        self._folder = root if self._is_v2 else root / "cpuset"

    def containers(self) -> list[Container]:
        """All containers of pods; none if there is no cpuset controller."""
        return list(_containers(self._folder))

    def read(self, container: Container) -> Cpuset:
        """Read the set of a container.

        Raises:
            OSError: it has ended, or has no CPU set.
            InvalidValueError: a file is not a list of CPUs.
        """
        # Version 2 has an empty set where it is inherited; version 1 copies the parent's.
        inherited = "cpuset.cpus.effective" if self._is_v2 else "cpuset.cpus"
        allowed = _read_cpus(container.folder.parent / inherited)
        own = _read_cpus(container.folder / "cpuset.cpus")
        if not own or (own == allowed and not self._is_v2):
            return Cpuset(allowed=allowed)
        # A CPU that goes offline leaves a set of version 1.
        ours = any(own in (cpus, cpus & allowed) for cpus in _marked(container.folder))
        return Cpuset(allowed=allowed, bound=own) if ours else Cpuset(allowed=allowed, foreign=own)

    def bind(self, container: Container, cpus: Cpus) -> None:
        """Bind a container to CPUs, all of its threads at once.

        Raises:
            OSError: it has ended, or the kernel refuses the set.
        """
        file = container.folder / "cpuset.cpus"
        # A crash in between leaves one of the two sets, and both are marked.
        _set_mark(container.folder, _read_cpus(file), cpus)
        file.write_text(format_cpu_list(cpus))
        _set_mark(container.folder, cpus)

    def release(self, container: Container) -> None:
        """Let a container use all CPUs of its pod again.

        Raises:
            OSError: it has ended.
        """
        text = "\n" if self._is_v2 else _read(container.folder.parent / "cpuset.cpus")
        (container.folder / "cpuset.cpus").write_text(text)
        os.removexattr(container.folder, MARK)


def _marked(folder: Path) -> list[Cpus]:
    """The sets in the mark of a cgroup; none if it has no mark."""
    try:
        text = os.getxattr(folder, MARK).decode()
        return [read_cpu_list(cpus, MARK) for cpus in text.split()]
    except (OSError, UnicodeDecodeError, InvalidValueError):
        return []


def _set_mark(folder: Path, *sets: Cpus) -> None:
    os.setxattr(folder, MARK, " ".join(map(format_cpu_list, sets)).encode())


def _containers(root: Path) -> Iterator[Container]:
    folders = [(root, "")]
    for folder, pod in folders:
        for child in _folders(folder):
            inner = pod_in(child.name) or pod
            container = container_in(child.name)
            if container and inner:
                yield Container(inner, container, child)
            elif not container and len(folders) < _MAX_FOLDERS:
                folders.append((child, inner))


def _below(folder: Path) -> Iterator[Path]:
    """A folder and those in it, breadth first."""
    folders = [folder]
    for each in folders:
        yield each
        if len(folders) < _MAX_FOLDERS:
            folders += _folders(each)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # it has ended
    return [folder / name for name in sorted(found)[:_MAX_FOLDERS]]


def _read_cpus(file: Path) -> Cpus:
    with file.open() as opened:
        return read_cpu_list(opened.read(_TEXT_MAX), file.name)


def _read(file: Path) -> str:
    try:
        with file.open() as opened:
            return opened.read(_TEXT_MAX)
    except OSError:
        return ""
