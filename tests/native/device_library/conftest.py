"""A fake machine and a claim on its first GPU."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.session import Connection, FakeSession, Machine, Probe


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on tmpfs; its path is short enough for a socket's address."""
    path = Path(tempfile.mkdtemp(prefix="kubeshare-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def machine(folder: Path) -> Machine:
    state = folder / "gpus"
    state.mkdir()
    return Machine(state)


@pytest.fixture
def session(folder: Path, machine: Machine) -> Iterator[FakeSession]:
    """1 GiB of the GPU, request .3; its gate is closed."""
    with FakeSession(folder, [machine.grant()]) as made:
        yield made


@pytest.fixture
def probe(machine: Machine, session: FakeSession) -> Iterator[Probe]:
    """A program of the claim that has not touched the GPU yet."""
    with machine.start(session.environment) as started:
        yield started


@pytest.fixture
def work(machine: Machine, session: FakeSession) -> Iterator[Probe]:
    """A program of the claim with a context and two streams."""
    with machine.run(["work"], session.environment) as started:
        started.do("init")
        yield started


@pytest.fixture
def connection(session: FakeSession, work: Probe) -> Connection:
    """Of that program; the gate is open."""
    connection = session.accept()
    session.open()
    return connection
