"""The lock of a run folder, while a file system is mounted over the folder."""

import os
from pathlib import Path

import pytest

from kubeshare.tokens.files import folder_lock
from kubeshare.tokens.files.folder_lock import AnotherDaemonError
from kubeshare.tokens.files.run_folder import Paths


def is_locked(lock: Path) -> bool:
    taken = folder_lock.take_unserved(Paths(lock.parent))
    if taken is not None:
        os.close(taken)
    return taken is None


def test_one_daemon_or_mount_at_a_time(paths: Paths) -> None:
    first = folder_lock.take(paths).descriptor
    with pytest.raises(AnotherDaemonError, match=f"pid {os.getpid()} serves"):
        folder_lock.take(paths)
    assert folder_lock.take_unserved(paths) is None
    os.close(first)
    mounting = folder_lock.take_unserved(paths)
    assert mounting is not None
    with pytest.raises(AnotherDaemonError):
        folder_lock.take(paths)
    os.close(mounting)
    os.close(folder_lock.take(paths).descriptor)


class Mounts:
    """Puts other folders at the path between the opening of the lock and its locking."""

    def __init__(self, paths: Paths, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self._root = paths.root
        self._times = times
        self._try = folder_lock._try
        self.hidden: list[Path] = []
        monkeypatch.setattr(folder_lock, "_try", self)

    def __call__(self, lock: int) -> bool:
        if len(self.hidden) < self._times:
            self.hidden.append(self._root.with_name(f"hidden{len(self.hidden)}"))
            self._root.rename(self.hidden[-1])
            self._root.mkdir(mode=0o700)
        return self._try(lock)


def test_what_is_locked_is_what_is_at_the_path(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = Mounts(paths, monkeypatch, times=1)
    lock = folder_lock.take(paths).descriptor
    assert os.path.samestat(os.fstat(lock), paths.lock.stat())
    assert paths.grants.is_dir()
    assert not is_locked(mounts.hidden[0] / paths.lock.name)
    os.close(lock)


def test_a_folder_that_is_replaced_again_and_again_is_not_served(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = Mounts(paths, monkeypatch, times=100)
    with pytest.raises(OSError, match="replaced each time"):
        folder_lock.take(paths)
    assert len(mounts.hidden) == 3


def test_what_was_unmounted_is_not_served(paths: Paths) -> None:
    paths.make()
    paths.unmounted.touch()
    with pytest.raises(OSError, match="unmounted by the node agent: start again"):
        folder_lock.take(paths)
    assert not is_locked(paths.lock)
