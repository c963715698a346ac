"""A GPU whose memory is full has none for the streams of the library either."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from expectations.drains import expect_busy, expect_little_queued
from fakes.session import MIB, Connection, FakeSession, Machine, Probe

pytestmark = [pytest.mark.native, pytest.mark.parametrize("driver", [550, 615])]

MILLISECOND_NS = 1_000_000
WITHOUT_END_US = 60_000_000
"""Of a kernel that no test waits for."""
STREAM = 3 * MIB
ROOM = 2 * MIB
"""What is left of the GPU: too little for a stream."""


@pytest.fixture
def machine(driver: int, folder: Path) -> Machine:
    profile = folder / "machine.profile"
    profile.write_text(
        f"model = V100\ndriver_version = {driver}\nstream_memory = 3\nstate = {folder}\n"
    )
    return Machine(folder, str(profile))


@pytest.fixture
def session(folder: Path, machine: Machine) -> Iterator[FakeSession]:
    """All memory of the GPU; its gate is closed."""
    with FakeSession(folder, [machine.grant(memory=machine.gpu()["total_memory"])]) as made:
        yield made


@pytest.fixture
def pointer(machine: Machine, probe: Probe) -> int:
    """Of what the program has allocated: as much as there was."""
    probe.do("init")
    probe.do("retain", 0)
    gpu = machine.gpu()
    pointer: int = probe.do("alloc", gpu["total_memory"] - gpu["used_memory"] - ROOM)["pointer"]
    return pointer


@pytest.fixture
def connection(session: FakeSession, probe: Probe, pointer: int) -> Connection:
    """Of that program, which has launched nothing; the gate is open."""
    connection = session.accept()
    session.open()
    return connection


def test_little_is_queued_when_a_turn_ends(
    machine: Machine, session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.send("launch", "kernel", 1000, 5000)
    expect_little_queued(machine, session, connection)


def test_a_long_drain_is_spoken_of_while_it_lasts(
    session: FakeSession, probe: Probe, connection: Connection
) -> None:
    probe.do("launch", "kernel", WITHOUT_END_US, 1)
    expect_busy(session, connection)


def test_a_drain_ends_with_the_work_and_what_lacked_comes_with_memory_for_it(
    machine: Machine, session: FakeSession, probe: Probe, pointer: int, connection: Connection
) -> None:
    for _ in range(3):
        session.open()
        began = time.monotonic_ns()
        probe.do("launch", "kernel", 20_000, 1)
        assert session.drain(connection).time_ns > began + 20 * MILLISECOND_NS
    assert machine.gpu()["used_memory"] == machine.gpu()["total_memory"] - ROOM
    probe.do("free", pointer)
    session.open()
    probe.do("launch", "kernel", 1000, 1)
    session.drain(connection)
    assert machine.gpu()["used_memory"] == 2 * STREAM
