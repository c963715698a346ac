"""What the library tells the daemon about the GPU's own time."""

import time
from pathlib import Path

import pytest

from expectations.drains import expect_busy
from fakes.session import Connection, FakeSession, Machine, Probe
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

MILLISECOND_NS = 1_000_000
WITHOUT_END_US = 60_000_000
"""Of a kernel that no test waits for."""


@pytest.fixture
def connection(session: FakeSession, probe: Probe) -> Connection:
    """Of a program with a context, which has launched nothing; the gate is open."""
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    return connection


def begin_work(probe: Probe, milliseconds: int) -> tuple[int, int]:
    """One long kernel, which leaves no gap however busy the machine is; between when it began."""
    before = time.monotonic_ns()
    return before, int(probe.do("launch", "kernel", 1000 * milliseconds, 1)["now_ns"])


def is_end(time_ns: int, start_ns: tuple[int, int], milliseconds: int) -> bool:
    """Whether work that takes so long was done then, within a millisecond."""
    earliest, latest = (start + milliseconds * MILLISECOND_NS for start in start_ns)
    return earliest < time_ns < latest + MILLISECOND_NS


@pytest.mark.serial
def test_drained_comes_when_the_gpu_is_done_and_says_when_it_was(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    start = begin_work(probe, 400)
    drained = session.drain(connection)
    assert machine.gpu()["busy_ns"] == 400 * MILLISECOND_NS
    assert is_end(drained.time_ns, start, 400)


@pytest.mark.serial
def test_a_second_turn_is_measured_as_well_as_the_first(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 1000, 10)
    session.drain(connection)
    session.open()
    start = begin_work(probe, 400)
    assert is_end(session.drain(connection).time_ns, start, 400)


def test_launches_wait_while_the_gate_is_closing(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 20_000, 5)
    session.page.set_gate(0, GateState.CLOSING)
    probe.send("launch", "kernel", 1000, 1)
    assert connection.expect(MessageType.WANT).epoch == session.page.epoch(0)
    assert probe.is_silent()
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    connection.expect(MessageType.DRAINED)
    session.close()
    assert probe.is_silent()
    session.open()
    assert probe.answer()["result"] == 0


def test_all_contexts_of_a_process_are_drained(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 1000, 1)
    probe.do("create", 0)
    probe.do("launch", "kernel", 50_000, 2)
    drained = session.drain(connection)
    after = probe.do("sync")["now_ns"]
    assert drained.time_ns <= after
    assert session.drain(connection).time_ns == drained.time_ns


def test_a_process_that_launched_nothing_is_drained_at_once(
    session: FakeSession, connection: Connection
) -> None:
    assert session.drain(connection).time_ns == 0


@pytest.mark.serial
def test_idle_is_said_once_when_nothing_is_queued_any_more(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    start = begin_work(probe, 400)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    idle = connection.expect(MessageType.IDLE)
    assert idle.epoch == session.page.epoch(0)
    assert is_end(idle.time_ns, start, 400)
    assert session.drain(connection).time_ns == idle.time_ns


def test_a_watch_ends_with_its_epoch(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 100_000, 1)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    session.drain(connection)
    session.open()
    probe.do("launch", "kernel", 1000, 1)
    probe.do("sync")
    session.drain(connection)
    assert connection.is_quiet()


def test_an_ended_context_is_drained_no_more(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("create", 0)
    probe.do("launch", "kernel", 1000, 3)
    probe.do("destroy")
    probe.do("release", 0)
    session.drain(connection)
    probe.do("retain", 0)
    session.open()
    probe.do("launch", "kernel", 1000, 3)
    session.drain(connection)


def test_a_gate_that_opens_again_before_the_drain_ends_lets_launches_through(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", WITHOUT_END_US, 1)
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    probe.send("launch", "kernel", 1000, 1)
    connection.expect(MessageType.WANT)
    session.open()
    assert probe.answer()["result"] == 0
    assert connection.is_quiet()


def test_a_long_drain_is_spoken_of_while_it_lasts(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", WITHOUT_END_US, 1)
    expect_busy(session, connection)


def test_a_daemon_of_protocol_1_hears_nothing_that_it_does_not_know(
    machine: Machine, session: FakeSession
) -> None:
    with machine.start(session.environment) as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.open()
        probe.send("launch", "kernel", 300_000, 1)
        connection = session.accept(protocol=1)
        assert probe.answer()["result"] == 0
        session.page.set_gate(0, GateState.CLOSING)
        connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
        assert connection.receive().type is MessageType.DRAINED


def test_a_late_answer_is_given_while_the_gate_stays_closed(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 100_000, 1)
    session.page.set_gate(0, GateState.CLOSING)
    asked = session.page.epoch(0)
    connection.send(MessageType.CLOSING, 0, asked)
    session.close()
    assert connection.expect(MessageType.DRAINED).epoch == asked


@pytest.mark.slow
def test_a_gpu_that_is_done_does_not_wait_for_another_one(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    with (
        FakeSession(folder, [machine.grant(0), machine.grant(1)]) as session,
        machine.start(session.environment) as probe,
    ):
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        session.open(0)
        session.open(1)
        probe.do("launch", "kernel", WITHOUT_END_US, 1)
        for cell in (0, 1):
            session.page.set_gate(cell, GateState.CLOSING)
            connection.send(MessageType.CLOSING, cell, session.page.epoch(cell))
        assert connection.expect(MessageType.DRAINED).cell == 1
        assert connection.is_quiet()


def test_who_wants_names_all_gpus_on_which_it_has_a_context(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    with (
        FakeSession(folder, [machine.grant(1), machine.grant(0)]) as session,
        machine.start(session.environment) as probe,
    ):
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        probe.send("launch", "kernel", 1000, 1)
        want = connection.expect(MessageType.WANT)
        assert (want.cell, want.value) == (1, 0b10)
        session.open(1)
        probe.answer()
        probe.do("create", 1)
        probe.send("launch", "kernel", 1000, 1)
        want = connection.expect(MessageType.WANT)
        assert (want.cell, want.value) == (0, 0b11)
        session.open(0)
        assert probe.answer()["result"] == 0
