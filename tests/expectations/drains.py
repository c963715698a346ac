"""Expectations about what a program under the library has queued."""

from fakes.session import Connection, FakeSession, Machine, eventually
from kubeshare.tokens.wire.protocol import GateState, MessageType

_MILLISECOND_NS = 1_000_000


def expect_busy(session: FakeSession, connection: Connection) -> None:
    """End a turn whose work lasts: the program says again and again that it is busy with it."""
    session.page.set_gate(0, GateState.CLOSING)
    connection.send(MessageType.CLOSING, 0, session.page.epoch(0))
    said = [connection.receive() for _ in range(3)]
    assert {message.type for message in said} == {MessageType.BUSY}
    assert {message.epoch for message in said} == {session.page.epoch(0)}


def expect_little_queued(machine: Machine, session: FakeSession, connection: Connection) -> int:
    """End a turn in which a program launches without a pause.

    It drains in less than 150 ms, and runs no more until the gate opens again.

    Returns:
        For how long the GPU had been busy when the turn ended, in ns.
    """
    assert eventually(lambda: machine.gpu()["busy_ns"] > 100 * _MILLISECOND_NS)
    session.page.set_gate(0, GateState.CLOSING)
    before: int = machine.gpu()["busy_ns"]
    session.drain(connection)
    drained = machine.gpu()["busy_ns"]
    assert drained - before < 150 * _MILLISECOND_NS
    connection.expect(MessageType.WANT)
    assert machine.gpu()["busy_ns"] == drained
    return before
