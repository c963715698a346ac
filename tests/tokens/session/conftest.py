"""A session with two processes, a clock and a recorder of its events."""

from collections.abc import Iterator

import pytest

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import GrantState
from kubeshare.tokens.wire.rate import Spare
from tokens.conversation import Loop
from tokens.helpers import grant
from tokens.session.members import NOW, Clock, Process, Recorder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def session(paths: Paths, loop: Loop, recorder: Recorder, clock: Clock) -> Iterator[Session]:
    paths.make()
    session = Session(
        paths,
        grant("a"),
        loop=loop,
        clock=clock,
        tokens=recorder,
        events=recorder,
        spare=Spare(0),
    )
    session.set_state(GrantState.ACTIVE)
    session.open(0, NOW)
    yield session
    session.end()


@pytest.fixture
def processes(session: Session, paths: Paths, loop: Loop) -> Iterator[list[Process]]:
    """Two that are connected while the gate is open."""
    found = [Process(paths, loop), Process(paths, loop)]
    yield found
    for process in found:
        process.close()
