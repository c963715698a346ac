"""Manages the lab's control groups, a subtree in every hierarchy.

Version 1 has a hierarchy for each controller, version 2 one for all; a lab's subtree looks the
same in each. The machine's own groups are never touched.
"""

import contextlib
import os
import time
from pathlib import Path

from kubeshare.lab.errors import LabError

ROOT = Path("/sys/fs/cgroup")
_REMOVE_SECONDS = 60.0
_POLL_SECONDS = 0.05


def unified(root: Path = ROOT) -> bool:
    """Whether this machine has version 2 only."""
    return (root / "cgroup.controllers").exists()


def _hierarchies(root: Path) -> list[Path]:
    if unified(root):
        return [root]
    return [one for one in sorted(root.iterdir()) if one.is_dir() and not one.is_symlink()]


def folders(group: str, root: Path = ROOT) -> list[Path]:
    """Where the group is, or would be, in every hierarchy."""
    return [hierarchy / group for hierarchy in _hierarchies(root)]


def make(group: str, root: Path = ROOT) -> None:
    """Make a group and those above it, ready for processes."""
    for hierarchy in _hierarchies(root):
        folder = hierarchy
        for part in Path(group).parts:
            _delegate(folder)
            folder /= part
            folder.mkdir(exist_ok=True)
            _inherit_cpus(folder)


def _delegate(folder: Path) -> None:
    """Version 2: enable this group's controllers for the groups below."""
    offered, given = folder / "cgroup.controllers", folder / "cgroup.subtree_control"
    if offered.exists():
        for controller in offered.read_text().split():
            # A controller may be refused, for example cpu beside real-time processes: do without.
            with contextlib.suppress(OSError):
                given.write_text(f"+{controller}")


def _inherit_cpus(folder: Path) -> None:
    """Version 1: a new cpuset accepts no process until it has CPUs and memory."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        own = folder / file
        if own.exists() and not own.read_text().strip() and not unified(folder.parent):
            with contextlib.suppress(OSError):
                own.write_text((folder.parent / file).read_text())


def members(group: str, root: Path = ROOT) -> set[int]:
    """The pids of all processes in a group and in those below it."""
    found: set[int] = set()
    for folder in folders(group, root):
        # Groups may vanish during the walk; os.walk skips those that are gone.
        for path, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                procs = (Path(path) / "cgroup.procs").read_text()
                found.update(int(pid) for pid in procs.split())
    return found


def exists(group: str, root: Path = ROOT) -> bool:
    """Whether any hierarchy has the group."""
    return any(folder.exists() for folder in folders(group, root))


def _remove_once(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def remove(group: str, root: Path = ROOT) -> None:
    """Remove a group bottom-up, then those above it that are empty.

    Raises:
        LabError: something still runs in it.
    """
    deadline = time.monotonic() + _REMOVE_SECONDS
    while exists(group, root):
        for folder in folders(group, root):
            _remove_once(folder)
        if time.monotonic() > deadline:
            raise LabError(f"control group {group} is still in use: `kubeshare lab down` again")
        if exists(group, root):
            time.sleep(_POLL_SECONDS)
    for folder in folders(str(Path(group).parent), root):
        with contextlib.suppress(OSError):
            folder.rmdir()
