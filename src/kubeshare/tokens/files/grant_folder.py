"""Watches the folder of grant files for added, changed and removed ones."""

import errno
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from kubeshare.tokens.files.run_folder import GrantError, Paths
from kubeshare.tokens.files.statuses import read_status
from kubeshare.tokens.linux import FolderWatch
from kubeshare.tokens.wire.page import revoke

# Identifies one version of a file: inode, size, time of change.
_Signature = tuple[int, int, int]


class Changes(NamedTuple):
    """What differs from the last scan."""

    gone: list[Path]
    changed: list[Path]
    new: list[Path]


class GrantFolder:
    """Watches the grant files of a run folder.

    Attributes:
        fd: readable when a grant file was added, replaced or removed.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._watch = FolderWatch(paths.grants)
        self._signatures: dict[Path, _Signature] = {}
        self.fd = self._watch.fd

    def scan(self) -> Changes:
        """Compare the folder with the last scan.

        New files are in the order of activation: first those that an earlier daemon had
        activated, then by age.

        Raises:
            FileNotFoundError: the folder has been removed; another one may be at its path.
        """
        if self._watch.clear():
            raise FileNotFoundError(errno.ENOENT, "removed", str(self._paths.grants))
        found: dict[Path, _Signature] = {}
        for entry in os.scandir(self._paths.grants):
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found[Path(entry.path)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        before, self._signatures = self._signatures, found
        return Changes(
            gone=[path for path in before if path not in found],
            changed=[p for p, known in before.items() if p in found and found[p] != known],
            new=sorted(found.keys() - before.keys(), key=self._was_active, reverse=True),
        )

    def sweep(self) -> None:
        """Remove the files that an earlier daemon left of grants that have ended."""
        for folder in self._paths.made:
            for left in folder.iterdir():
                claim = left.name.removesuffix(".json") if left.suffix else left.name
                if not self._paths.grants.joinpath(f"{claim}.json").exists():
                    revoke(left / "page")  # of a claim: its processes may run on
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def _was_active(self, path: Path) -> tuple[bool, int]:
        try:
            status = read_status(self._paths, path.stem)
            age = -path.stat().st_mtime_ns
        except (GrantError, FileNotFoundError):
            return False, 0
        return status is not None and status.state == "ACTIVE", age
