"""Fixtures: a run folder in memory, and a daemon for it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeshare.core.token import turns
from kubeshare.tokens.files.run_folder import Paths
from tokens.helpers import RunningDaemon


@pytest.fixture
def paths() -> Iterator[Paths]:
    with tempfile.TemporaryDirectory(prefix="kubeshare-", dir="/dev/shm") as folder:
        yield Paths(Path(folder) / "run")


@pytest.fixture
def daemon(paths: Paths) -> Iterator[RunningDaemon]:
    with RunningDaemon(paths) as running:
        yield running


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that its machine keeps waiting for a moment is no holder that hangs."""
    monkeypatch.setattr(turns, "_DRAIN_TIMEOUT_NS", 10_000_000_000)
