"""A program that runs ahead of the GPU cannot take more than its turn."""

import time
from pathlib import Path

import pytest

from expectations.drains import expect_little_queued
from fakes.session import Connection, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@pytest.fixture
def connection(session: FakeSession, probe: Probe) -> Connection:
    """Of a program with a context and an open gate."""
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    return connection


def test_little_is_queued_when_a_turn_ends(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.send("launch", "kernel", 1000, 5000)
    before = expect_little_queued(machine, session, connection)
    session.open()
    assert eventually(lambda: machine.gpu()["busy_ns"] - before > 300 * MILLISECOND_NS)


def test_short_and_long_kernels_go_on_without_help(
    machine: Machine, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", 5, 20_000)
    probe.do("launch", "kernel", 50_000, 4)
    probe.do("launch", "kernel", 5, 20_000)
    probe.do("sync")
    assert machine.gpu()["busy_ns"] == (2 * 20_000 * 5 + 4 * 50_000) * 1000
    assert connection.is_quiet()


@pytest.mark.slow
def test_who_waits_for_credit_is_not_idle(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    def is_idle_at_the_end() -> bool:
        connection.send(MessageType.WATCH, 0, session.page.epoch(0))
        began_ns = machine.stat()["now_ns"]
        probe.do("launch", "kernel", 80_000, 8)
        probe.do("sync")
        idle = connection.receive()
        assert idle.type is MessageType.IDLE
        return bool(idle.time_ns - began_ns >= 8 * 80 * MILLISECOND_NS)

    # A busy machine may keep the program from a launch so long that it is idle before.
    assert eventually(is_idle_at_the_end)


def until_alone(machine: Machine, session: FakeSession, probe: Probe) -> None:
    """Let a claim work on past the end of its lease, as one does that has the GPU to itself."""
    begin = machine.stat()["now_ns"]
    session.page.set_lease_end(0, begin)
    probe.do("work", 1000, 50, 10)
    session.page.set_lease_end(0, begin + SECOND_NS)
    assert eventually(lambda: probe.do("work", 1000, 20, 10)["now_ns"] - begin > 1.5 * SECOND_NS)


@pytest.mark.serial
@pytest.mark.slow
def test_a_claim_that_has_the_gpu_to_itself_is_not_metered(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    until_alone(machine, session, probe)
    busy_ns = machine.gpu()["busy_ns"]
    probe.do("launch", "kernel", 1000, 900)
    assert machine.gpu()["busy_ns"] - busy_ns < 600 * MILLISECOND_NS
    # Nor does it give the GPU back for a pause of a few milliseconds.
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    probe.do("sync")
    idle = connection.expect(MessageType.IDLE)
    assert machine.stat()["now_ns"] - idle.time_ns > 45 * MILLISECOND_NS
    session.drain(connection)


def test_a_claim_that_has_the_gpu_to_itself_is_seldom_looked_at(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    until_alone(machine, session, probe)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    probe.do("launch", "kernel", 1000, 900)
    busy_ns = machine.gpu()["busy_ns"]
    began, before = time.monotonic(), wakeups(probe)
    assert eventually(lambda: machine.gpu()["busy_ns"] - busy_ns > 600 * MILLISECOND_NS)
    looks = wakeups(probe) - before
    assert looks < 200 * (time.monotonic() - began)


@pytest.mark.slow
def test_who_had_the_gpu_to_itself_is_metered_from_the_end_of_that_turn_on(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    until_alone(machine, session, probe)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    probe.do("launch", "kernel", 1000, 900)
    session.drain(connection)
    session.open()
    probe.send("launch", "kernel", 1000, 5000)
    busy_ns = machine.gpu()["busy_ns"]
    assert eventually(lambda: machine.gpu()["busy_ns"] - busy_ns > 100 * MILLISECOND_NS)
    session.page.set_gate(0, GateState.CLOSING)
    before = machine.gpu()["busy_ns"]
    session.drain(connection)
    assert machine.gpu()["busy_ns"] - before < 150 * MILLISECOND_NS


def wakeups(probe: Probe) -> int:
    """How often the library's thread has slept."""
    [thread] = [
        each
        for each in Path(f"/proc/{probe.process.pid}/task").iterdir()
        if (each / "comm").read_text() == "kubeshare\n"
    ]
    lines = (thread / "status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary")))
