"""Drivers without an event for a whole context (before CUDA 12.5): the same figures as with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.session import Connection, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

MILLISECOND_NS = 1_000_000
FREE = 0
"""A stream that does not wait for the default one."""


@pytest.fixture(params=[525, 550])
def machine(request: pytest.FixtureRequest, folder: Path) -> Machine:
    state = folder / "gpus"
    state.mkdir()
    profile = folder / "old.profile"
    profile.write_text(f"driver_version = {request.param}\n")
    return Machine(state, str(profile))


@pytest.fixture
def work(machine: Machine, session: FakeSession) -> Iterator[Probe]:
    """A program with a context and two streams."""
    with machine.run(["work"], session.environment) as started:
        started.do("init")
        yield started


@pytest.fixture
def connection(session: FakeSession, work: Probe) -> Connection:
    """Of that program; the gate is open."""
    connection = session.accept()
    session.open()
    return connection


def close(session: FakeSession, connection: Connection) -> None:
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))


def test_little_is_queued_on_a_stream_of_its_own_when_a_turn_ends(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.send("launch", FREE, 1000, 5000)
    assert eventually(lambda: machine.gpu()["busy_ns"] > 100 * MILLISECOND_NS)
    session.page.set_gate(0, GateState.CLOSING)
    before = machine.gpu()["busy_ns"]
    session.drain(connection)
    assert machine.gpu()["busy_ns"] - before < 150 * MILLISECOND_NS


@pytest.mark.parametrize("launch", ["launch", "thread"])
def test_a_drain_ends_with_the_work_of_every_stream(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, launch: str
) -> None:
    before_ns = work.do(launch, 0, 60_000, 1)["now_ns"]
    work.do(launch, 1, 60_000, 1)
    end_ns = session.drain(connection).time_ns
    assert machine.gpu()["busy_ns"] == 120 * MILLISECOND_NS
    assert end_ns - before_ns > 60 * MILLISECOND_NS


def test_the_work_of_a_stream_that_was_destroyed_is_waited_for(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("launch", 0, 200_000, 1)
    work.do("destroy", 0)
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS


def test_a_drain_keeps_no_other_thread_out_of_the_library(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("launch", FREE, 60_000_000, 1)
    close(session, connection)
    connection.expect(MessageType.BUSY)
    work.do("destroy", 1)
    assert connection.receive().type is MessageType.BUSY
