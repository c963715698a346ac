"""Primary contexts that several hold: their work counts until the last one releases them."""

from collections.abc import Iterator

import pytest

from fakes.session import Connection, FakeSession, Machine, Probe
from kubeshare.tokens.wire.protocol import GateState, MessageType

pytestmark = pytest.mark.native

WITHOUT_END_US = 60_000_000
"""Of a kernel that no test waits for."""


@pytest.fixture
def work(machine: Machine, session: FakeSession) -> Iterator[Probe]:
    with machine.run(["work"], session.environment) as probe:
        probe.do("init")
        yield probe


def close(session: FakeSession, connection: Connection) -> None:
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))


def assert_is_busy(connection: Connection) -> None:
    """More often than what was sent before could say."""
    for _ in range(3):
        assert connection.receive().type is MessageType.BUSY


@pytest.mark.parametrize("retain", ["retain", "retain-unseen"])
def test_a_release_of_a_context_that_others_retain_ends_no_drain(
    session: FakeSession, work: Probe, retain: str
) -> None:
    connection = session.accept()
    work.do(retain)
    session.open()
    work.do("launch", 0, WITHOUT_END_US, 1)
    close(session, connection)
    assert connection.receive().type is MessageType.BUSY
    work.do("release")
    assert_is_busy(connection)


def test_the_last_release_waits_for_its_work_and_no_drain_for_the_release(
    session: FakeSession, work: Probe
) -> None:
    connection = session.accept()
    session.open()
    work.do("launch", 0, WITHOUT_END_US, 1)
    work.send("release")
    close(session, connection)
    assert_is_busy(connection)
    assert work.is_silent()


def test_a_context_that_ended_with_its_last_release_is_drained(
    machine: Machine, session: FakeSession, work: Probe
) -> None:
    connection = session.accept()
    work.do("retain")
    for _ in range(2):
        session.open()
        work.do("launch", 0, 100_000, 1)
        work.send("release")
        session.drain(connection)
        work.answer()
    assert machine.gpu()["busy_ns"] == 200_000_000
    work.do("retain")
    session.drain(connection)


@pytest.mark.slow
def test_no_end_is_missed_where_releases_and_new_contexts_meet(
    session: FakeSession, work: Probe
) -> None:
    session.accept()
    session.open()
    work.do("release")
    for _ in range(300):
        work.do("primary", 8, 5, 1)
        assert session.charged() == 0


@pytest.mark.slow
def test_no_memory_of_a_context_is_forgotten_when_the_one_before_it_ends(
    session: FakeSession, work: Probe
) -> None:
    session.accept()
    session.open()
    work.do("release")
    for _ in range(60):
        work.do("primary", 2, 500, 1)
    assert session.charged() == 0
