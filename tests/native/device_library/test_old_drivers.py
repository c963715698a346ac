"""Drivers without an event for a whole context (before CUDA 12.5): the same figures as with it."""

from pathlib import Path

import pytest

from expectations.drains import expect_little_queued
from fakes.session import Connection, FakeSession, Machine, Probe
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

MILLISECOND_NS = 1_000_000
DRIVERS = pytest.mark.parametrize("driver", [525, 550])
FREE = 0
"""A stream that does not wait for the default one."""


@pytest.fixture
def driver() -> int:
    """The branch."""
    return 525


@pytest.fixture
def machine(driver: int, folder: Path) -> Machine:
    state = folder / "gpus"
    state.mkdir()
    profile = folder / "old.profile"
    profile.write_text(f"driver_version = {driver}\n")
    return Machine(state, str(profile))


def close(session: FakeSession, connection: Connection) -> None:
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))


@DRIVERS
def test_little_is_queued_on_a_stream_of_its_own_when_a_turn_ends(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.send("launch", FREE, 1000, 5000)
    expect_little_queued(machine, session, connection)


@pytest.mark.parametrize("launch", ["launch", "thread"])
def test_a_drain_ends_with_the_work_of_every_stream(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, launch: str
) -> None:
    before_ns = work.do(launch, 0, 60_000, 1)["now_ns"]
    work.do(launch, 1, 60_000, 1)
    end_ns = session.drain(connection).time_ns
    assert machine.gpu()["busy_ns"] == 120 * MILLISECOND_NS
    assert end_ns - before_ns > 60 * MILLISECOND_NS


GREEN = pytest.mark.parametrize("driver", [550])
"""Green contexts came with it."""


@GREEN
@pytest.mark.parametrize("launch", ["default 200000 1", "launch 2 200000 1"])
def test_a_drain_ends_with_the_work_of_a_green_context(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, launch: str
) -> None:
    for command in ("green", "enter", launch):
        work.do(*command.split())
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS


@GREEN
def test_the_work_of_a_green_context_that_was_ended_is_waited_for(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    for command in ("green", "enter", "default 200000 1", "leave", "ungreen"):
        work.do(*command.split())
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS


@GREEN
def test_little_is_queued_on_the_default_stream_of_a_green_context_when_a_turn_ends(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("green")
    work.do("enter")
    work.send("default", 1000, 5000)
    expect_little_queued(machine, session, connection)


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


@pytest.mark.parametrize("driver", [550])  # the probe uses what came with 535
@pytest.mark.parametrize("path", ["dlsym", "dlsym-ptsz"])
def test_the_default_streams_are_metered_and_drained(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        session.open()
        probe.send("launch", "kernel", 1000, 5000)
        expect_little_queued(machine, session, connection)


@GREEN
def test_what_follows_a_green_context_leaves_a_capture_in_it_valid(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("green")
    work.do("begin", 2, 2)
    work.do("launch", 2, 1000, 3)
    work.do("thread", 0, 1000, 30)
    session.drain(connection)
    work.do("end", 2)
