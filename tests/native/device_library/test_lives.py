"""Processes start others, threads die, signals come at the wrong moment: the share holds."""

import signal
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from deadlines import DEADLINE_S
from fakes.session import MIB, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.wire.protocol import MessageType

pytestmark = pytest.mark.native

EXITED = 7
HELD = 2 * MIB


@pytest.fixture
def start(machine: Machine, session: FakeSession) -> Iterator[Callable[[str], Probe]]:
    """Starts `lives` with a scene."""
    started: list[Probe] = []

    def begin(scene: str) -> Probe:
        probe = machine.run(["lives", scene], session.environment)
        started.append(probe)
        return probe

    yield begin
    for probe in started:
        with probe:
            pass


def step(probe: Probe, name: str, result: int = 0) -> dict[str, object]:
    answer = probe.answer()
    assert (answer["step"], answer["result"]) == (name, result)
    return answer


@pytest.mark.parametrize("way", ["vfork", "spawn"])
def test_a_started_child_is_a_process_of_its_own_and_inherits_no_descriptor(
    session: FakeSession, start: Callable[[str], Probe], way: str
) -> None:
    parent = start(way)
    step(parent, "parent")
    child_pid = step(parent, "child")["pid"]
    connections = {made.hello.pid: made for made in (session.accept(), session.accept())}
    assert connections.keys() == {parent.process.pid, child_pid}
    step(parent, "descriptors", 0)
    assert session.charged() == 2 * HELD
    parent.send("go")
    assert connections[cast("int", child_pid)].is_closed()
    session.open()
    step(parent, "after")
    assert parent.process.wait(DEADLINE_S) == 0
    assert eventually(lambda: session.charged() == 0)


def test_a_thread_that_is_cancelled_takes_no_lock_with_it(
    session: FakeSession, start: Callable[[str], Probe]
) -> None:
    probe = start("cancel")
    connection = session.accept()
    step(probe, "ready")
    connection.expect(MessageType.WANT)
    session.open()
    for name in ("cancelled", "allocated", "launched"):
        step(probe, name)
    step(probe, "done")
    session.drain(connection)


def test_exit_ends_a_process_whose_threads_allocate_and_launch(
    session: FakeSession, start: Callable[[str], Probe]
) -> None:
    probe = start("unwind")
    session.accept()
    session.open()
    step(probe, "exits")
    assert probe.process.wait(DEADLINE_S) == EXITED
    assert eventually(lambda: session.charged() == 0)


def test_a_signal_handler_may_allocate_while_its_thread_waits_at_the_gate(
    session: FakeSession, start: Callable[[str], Probe]
) -> None:
    probe = start("handler")
    step(probe, "ready")
    connection = session.accept()
    connection.expect(MessageType.WANT)
    for _ in range(5):
        probe.process.send_signal(signal.SIGUSR1)
        step(probe, "handler")
    assert probe.is_silent()
    assert session.charged() == 0
    session.open()
    step(probe, "launched")
    step(probe, "done")


def test_a_signal_handler_may_exit_while_its_thread_allocates(
    session: FakeSession, start: Callable[[str], Probe]
) -> None:
    for _ in range(10):
        probe = start("exit")
        step(probe, "ready")
        assert probe.process.wait(DEADLINE_S) == EXITED
    assert eventually(lambda: session.charged() == 0)


def test_work_that_functions_of_exit_do_is_done_whenever_they_were_registered(
    session: FakeSession, start: Callable[[str], Probe]
) -> None:
    probe = start("atexit")
    session.accept()
    step(probe, "ready")
    session.open()
    step(probe, "after cuInit")
    step(probe, "before cuInit")
    assert probe.process.wait(DEADLINE_S) == EXITED
    assert eventually(lambda: session.charged() == 0)
