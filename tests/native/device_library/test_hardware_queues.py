"""The library where streams run side by side, and where its own stand behind the program's."""

import time
from pathlib import Path

import pytest

from expectations.drains import expect_little_queued
from fakes.profiles import CALL_COSTS
from fakes.session import Connection, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = [pytest.mark.native, pytest.mark.slow]

MILLISECOND_NS = 1_000_000
QUEUES = pytest.mark.parametrize(
    ("queues", "costs"),
    [(1, ""), (2, ""), (8, ""), (32, ""), pytest.param(8, CALL_COSTS, id="8, calls with costs")],
)
"""One: all streams share it. Two: one of the program's shares one with the library's."""


@pytest.fixture
def queues() -> int:
    return 1


@pytest.fixture
def costs() -> str:
    return ""


@pytest.fixture
def driver() -> int:
    return 615


@pytest.fixture
def machine(queues: int, costs: str, driver: int, folder: Path) -> Machine:
    state = folder / "gpus"
    state.mkdir()
    profile = folder / "queues.profile"
    profile.write_text(f"hardware_queues = {queues}\ndriver_version = {driver}\n{costs}")
    return Machine(state, str(profile))


@pytest.fixture
def side_by_side(queues: int) -> bool:
    """Whether the program's two streams have a queue each."""
    return queues >= 2


@QUEUES
@pytest.mark.parametrize("driver", [550, 615])
@pytest.mark.serial
def test_a_drain_ends_with_the_longest_stream_and_says_when(
    machine: Machine,
    session: FakeSession,
    work: Probe,
    connection: Connection,
    side_by_side: bool,
) -> None:
    for _ in range(2):
        busy_ns = machine.gpu()["busy_ns"]
        before_ns = time.monotonic_ns()
        work.do("launch", 0, 400_000, 1)
        after_ns = work.do("launch", 1, 100_000, 1)["now_ns"]
        end_ns = session.drain(connection).time_ns
        took_ns = (400 if side_by_side else 500) * MILLISECOND_NS
        assert machine.gpu()["busy_ns"] - busy_ns == took_ns
        assert before_ns + took_ns < end_ns < after_ns + took_ns + MILLISECOND_NS
        session.open()


@QUEUES
@pytest.mark.serial
def test_the_end_is_the_gpus_also_where_the_librarys_event_waits_behind_work(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    lateness_ns = []
    for _ in range(5):
        after_ns = work.do("launch", 0, 100_000, 1)["now_ns"]
        lateness_ns.append(session.drain(connection).time_ns - after_ns - 100 * MILLISECOND_NS)
        session.open()
    # When a thread saw it is tens of microseconds later than when it was.
    assert sorted(lateness_ns)[2] < 0


@QUEUES
@pytest.mark.parametrize("driver", [550, 615])
def test_little_is_queued_when_a_turn_ends(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection
) -> None:
    work.send("launch", 0, 1000, 5000)
    before = expect_little_queued(machine, session, connection)
    session.open()
    assert eventually(lambda: machine.gpu()["busy_ns"] - before > 300 * MILLISECOND_NS)


@QUEUES
@pytest.mark.parametrize("driver", [550, 615])
def test_a_drain_that_lasts_keeps_nobody_waiting(
    session: FakeSession, work: Probe, connection: Connection
) -> None:
    for stream in (0, 1):
        work.do("launch", stream, 60_000_000, 1)
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    connection.expect(MessageType.BUSY)
    work.do("destroy", 1)
    assert connection.receive().type is MessageType.BUSY


@QUEUES
def test_idle_is_said_when_no_queue_has_work(
    machine: Machine, session: FakeSession, work: Probe, connection: Connection, queues: int
) -> None:
    work.do("launch", 0, 300_000, 1)
    work.do("launch", 1, 50_000, 1)
    connection.send(MessageType.WATCH, 0, session.page.epoch(0))
    connection.expect(MessageType.IDLE)
    # Side by side they take 300 ms, and longer where the second one was launched late.
    least = 350 if queues == 1 else 300
    assert least * MILLISECOND_NS <= machine.gpu()["busy_ns"] <= 350 * MILLISECOND_NS
