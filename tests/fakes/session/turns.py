"""What a program does that gives its GPU work while the gate is closed."""

from fakes.session.probe import Machine, Probe
from fakes.session.session import Connection, FakeSession
from kubeshare.tokens.wire.protocol import MessageType


def waits_for_its_turn(
    machine: Machine,
    session: FakeSession,
    connection: Connection,
    program: Probe,
    *command: object,
) -> None:
    """See that a command's work waits until the gate opens, and runs then; close it again."""
    busy_ns = machine.gpu()["busy_ns"]
    program.send(*command)
    connection.expect(MessageType.WANT)
    assert program.is_silent()
    assert machine.gpu()["busy_ns"] == busy_ns
    session.open()
    assert program.answer()["error"] is None
    session.drain(connection)
    assert machine.gpu()["busy_ns"] > busy_ns
