"""What processes may send, and what anything else costs them."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deadlines import eventually
from kubeshare.tokens.files.statuses import read_status
from kubeshare.tokens.wire.protocol import MESSAGE, PROCESSES_MAX, MessageType
from tokens.helpers import (
    Client,
    RunningDaemon,
    grant,
)
from tokens.virtual_time import VirtualDaemon

HOSTILE = {
    "nothing": b"",
    "too short": b"x",
    "too long": b"x" * 4096,
    "unknown type": bytes(32),
    "no hello first": bytes.fromhex("01000200") + bytes(28),
    "another version": bytes.fromhex("63000100") + bytes(28),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_protocol_costs_the_sender_its_connection(
    daemon: RunningDaemon, name: str
) -> None:
    daemon.grant(grant("a"))
    good, bad = Client(daemon.paths, "a"), Client(daemon.paths, "a", hello=False)

    bad.socket.send(HOSTILE[name])

    eventually(lambda: bad.is_dropped, "the connection is closed")
    good.open()


messages = st.builds(
    MESSAGE.pack,
    st.just(1),
    st.integers(0, 20),
    st.integers(0, 2),
    st.integers(0, 8),
    st.just(0),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2),
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.one_of(st.binary(max_size=64), messages), min_size=1, max_size=12))
def test_whatever_one_process_says_others_are_served(
    daemon: RunningDaemon, said: list[bytes]
) -> None:
    if read_status(daemon.paths, "a") is None:
        daemon.grant(grant("a"))
        daemon.grant(grant("b"))
    hostile, good = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    with contextlib.suppress(ConnectionError):
        for data in said:
            hostile.socket.send(data)

    hostile.close()
    good.open()
    good.close()


@pytest.mark.parametrize("kind", [MessageType.HELLO, MessageType.WELCOME, MessageType.CLOSING])
def test_what_is_not_for_a_process_to_say_costs_the_connection(
    daemon: RunningDaemon, kind: MessageType
) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")

    client.send(kind, value=1)

    eventually(lambda: client.is_dropped, "the connection is closed")


def test_a_flood_of_wants_costs_nobody_else_anything(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a"))
    virtual.grant(grant("b"))
    flooding, other = virtual.client("a"), virtual.client("b")

    def flood() -> None:
        for _ in range(10_000):
            flooding.want()

    with pytest.raises(ConnectionError):
        flood()
    other.open()


@pytest.mark.slow
def test_a_claim_has_a_bounded_number_of_connections(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    clients = [Client(daemon.paths, "a", hello=False) for _ in range(PROCESSES_MAX)]

    one_more = Client(daemon.paths, "a", hello=False)

    assert one_more.receive().type is MessageType.REFUSED
    for client in clients:
        client.close()
