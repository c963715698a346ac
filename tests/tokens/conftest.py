"""Fixtures: a run folder in memory, and a daemon for it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kubeshare.core.token import turns
from kubeshare.tokens import client, control
from kubeshare.tokens.files.run_folder import Paths
from tokens.helpers import RunningDaemon
from tokens.virtual_time import VirtualDaemon


@pytest.fixture
def paths() -> Iterator[Paths]:
    with tempfile.TemporaryDirectory(prefix="kubeshare-", dir="/dev/shm") as folder:
        yield Paths(Path(folder) / "run")


@pytest.fixture
def daemon(paths: Paths) -> Iterator[RunningDaemon]:
    with RunningDaemon(paths) as running:
        yield running


@pytest.fixture(autouse=True)
def _long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to a daemon in this process may take long."""
    for module in (client, control):
        monkeypatch.setattr(module, "_TIMEOUT_S", DEADLINE_S)


@pytest.fixture
def virtual(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualDaemon]:
    running = VirtualDaemon(paths, monkeypatch)
    yield running
    running.close()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that its machine keeps waiting for a moment is no holder that hangs."""
    monkeypatch.setattr(turns, "_DRAIN_TIMEOUT_NS", round(DEADLINE_S * 1e9))
