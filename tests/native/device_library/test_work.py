"""Graphs, streams that wait, broken contexts: what a token's turns must not disturb."""

import time

import pytest

from expectations.drains import expect_little_queued
from fakes.session import MIB, Connection, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.files import counters
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MODES = pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
GREEN = 2
"""The stream in a green context."""
INVALIDATED = 901
ILLEGAL_ADDRESS = 700
MILLISECOND_NS = 1_000_000


@pytest.fixture
def connection(session: FakeSession, work: Probe) -> Connection:
    """Of that program; the gate is closed. Its launches are metered for a second from now."""
    return session.accept()


@MODES
def test_what_is_captured_neither_waits_nor_counts_and_its_graph_does(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, mode: int
) -> None:
    work.do("begin", 0, mode)
    work.do("launch", 0, 1000, 5)
    work.do("end", 0)
    assert connection.is_quiet()
    assert machine.gpu()["busy_ns"] == 0
    work.send("graph", 0)
    connection.expect(MessageType.WANT)
    assert work.is_silent()
    session.open()
    assert work.answer()["result"] == 0
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 5 * MILLISECOND_NS
    assert counters.read(session.counters)[0].launches == 1


@MODES
def test_a_turn_that_ends_during_a_capture_leaves_it_valid(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, mode: int
) -> None:
    session.open()
    work.do("launch", 0, 20_000, 5)
    work.do("begin", 0, mode)
    work.do("launch", 0, 1000, 100)
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 100 * MILLISECOND_NS
    work.do("launch", 0, 1000, 100)
    work.do("end", 0)


@pytest.mark.serial
def test_the_end_of_work_launched_before_a_capture_is_told_during_it(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    before = time.monotonic_ns()
    after = work.do("launch", 0, 400_000, 1)["now_ns"]
    work.do("begin", 0, GLOBAL)
    start = session.drain(connection).time_ns - 400 * MILLISECOND_NS
    assert before < start < after + MILLISECOND_NS
    work.do("end", 0)


@MODES
def test_a_drain_during_a_capture_covers_what_others_launch_beside_it(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, mode: int
) -> None:
    session.open()
    work.do("begin", 0, mode)
    work.do("thread", 1, 200_000, 1)
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS
    work.do("launch", 0, 1000, 3)
    work.do("end", 0)


def test_a_drain_during_a_capture_covers_the_streams_of_a_green_context(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("green")
    work.do("begin", 0, RELAXED)
    work.do("thread", GREEN, 200_000, 1)
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS
    work.do("end", 0)


def test_work_of_a_green_context_is_waited_for_when_it_was_ended(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("green")
    work.do("begin", 0, RELAXED)
    work.do("thread", GREEN, 200_000, 1)
    work.do("ungreen")
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS
    work.do("destroy", GREEN)
    work.do("end", 0)


@pytest.mark.parametrize("last", ["ungreen", "release"])
@pytest.mark.usefixtures("connection")
def test_memory_of_a_green_context_ends_with_the_primary_one(
    machine: Machine, session: FakeSession, work: Probe, last: str
) -> None:
    work.do("green")
    work.do("enter")
    work.do("alloc", 8 * MIB)
    work.do("leave")
    charged = session.charged()
    work.do("ungreen" if last == "release" else "release")
    assert session.charged() == machine.gpu()["used_memory"] == charged > 8 * MIB
    work.do(last)
    assert session.charged() == machine.gpu()["used_memory"] == 0


def test_the_streams_that_a_green_context_left_hide_no_other_work(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("green")
    work.do("ungreen")
    work.do("begin", 0, RELAXED)
    work.do("thread", 1, 200_000, 1)
    session.drain(connection)
    assert machine.gpu()["busy_ns"] == 200 * MILLISECOND_NS
    work.do("destroy", GREEN)
    work.do("end", 0)


def test_launches_beside_a_capture_that_never_ends_are_metered(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("begin", 0, RELAXED)
    work.send("thread", 1, 1000, 5000)
    expect_little_queued(machine, session, connection)


@MODES
def test_metered_launches_of_another_thread_leave_a_capture_valid(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, mode: int
) -> None:
    session.open()
    work.do("launch", 1, 100, 100)
    work.do("begin", 0, mode)
    work.do("thread", 1, 100, 900)
    work.do("launch", 0, 1000, 3)
    work.do("end", 0)
    work.do("graph", 0)
    work.do("sync")
    assert machine.gpu()["busy_ns"] == (1000 * 100 + 3 * 1000) * 1000
    assert connection.is_quiet()


def test_a_watch_leaves_a_capture_valid(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("launch", 1, 1000, 3)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    work.do("begin", 0, GLOBAL)
    connection.expect(MessageType.IDLE)
    work.do("launch", 0, 1000, 3)
    work.do("end", 0)


def test_a_capture_that_the_program_itself_breaks_stays_broken_and_gates_are_back(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("begin", 0, GLOBAL)
    work.do("sync", expect=None)
    work.do("end", 0, expect=INVALIDATED)
    work.send("launch", 0, 1000, 1)
    connection.expect(MessageType.WANT)
    assert work.is_silent()
    session.open()
    assert work.answer()["result"] == 0


def test_a_stream_that_is_destroyed_ends_its_capture(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.do("begin", 0, RELAXED)
    work.do("destroy", 0)
    work.send("launch", 1, 1000, 1)
    connection.expect(MessageType.WANT)
    assert work.is_silent()
    session.open()
    assert work.answer()["result"] == 0


def test_a_context_in_error_is_drained_all_the_same(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("launch", 1, 1000, 3)
    work.do("fault", 0)
    work.do("sync", expect=ILLEGAL_ADDRESS)
    session.drain(connection)
    session.open()
    work.do("launch", 1, 1000, 1, expect=ILLEGAL_ADDRESS)
    session.drain(connection)


def test_a_context_that_is_destroyed_while_its_work_goes_on_holds_nobody_up(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.send("contexts", 1, 500_000)
    assert eventually(lambda: machine.gpu()["busy_ns"] > 0)
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    connection.expect(MessageType.DRAINED)
    assert machine.gpu()["busy_ns"] == 500 * MILLISECOND_NS
    assert work.answer()["result"] == 0


def test_what_is_queued_may_wait_for_a_launch_that_has_no_credit(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("launch", 0, 1000, 1)
    work.do("wait", 0, 7)
    work.do("launch", 0, 1000, 1)
    work.do("pass", 1, 7)
    work.do("sync")
    assert machine.gpu()["busy_ns"] == 3 * MILLISECOND_NS
    session.drain(connection)


def test_work_that_waits_for_a_gated_launch_goes_on_when_the_gate_opens_again(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    session.open()
    work.do("wait", 0, 7)
    work.do("launch", 0, 1000, 1)
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    work.send("pass", 1, 7)
    connection.expect(MessageType.WANT)
    assert connection.is_quiet()
    session.open()
    assert work.answer()["result"] == 0
    session.drain(connection)
    assert eventually(lambda: machine.gpu()["busy_ns"] == 2 * MILLISECOND_NS)
