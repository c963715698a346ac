"""The events that a session's messages cause."""

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from kubeshare.tokens import session as session_module
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    MESSAGE,
    PROTOCOL_NEWEST,
    VERSION,
    GrantState,
    Message,
    MessageType,
)
from tokens.conversation import Loop
from tokens.helpers import grant

NOW = 1_000_000


class Recorder:
    """Keeps the session's events, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_want(self, _session: Session, gpus: list[str]) -> None:
        self.events.append(("want", *gpus))

    def on_drained(self, _session: Session, cell: int, idle_ns: int) -> None:
        self.events.append(("drained", cell, idle_ns))

    def on_busy(self, _session: Session, cell: int) -> None:
        self.events.append(("busy", cell))

    def on_idle(self, _session: Session, cell: int) -> None:
        self.events.append(("idle", cell))

    def on_gone(self, _session: Session) -> None:
        self.events.append(("gone",))

    def on_dropped(self, _session: Session, reason: str) -> None:
        self.events.append(("dropped", reason))


class Process:
    """One process of the session."""

    def __init__(self, paths: Paths, loop: Loop) -> None:
        self._loop = loop
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(str(paths.claim("a") / "socket"))
        loop.turn()
        self.send(Message(MessageType.HELLO, epoch=PROTOCOL_NEWEST, value=VERSION))
        assert self.receive().type is MessageType.WELCOME

    def send(self, message: Message) -> None:
        self._socket.send(message.pack())
        self._loop.turn()

    def receive(self) -> Message:
        return Message.unpack(self._socket.recv(MESSAGE.size, socket.MSG_DONTWAIT))

    def drain(self, epoch: int, time_ns: int) -> None:
        self.send(Message(MessageType.DRAINED, epoch=epoch, time_ns=time_ns))

    def close(self) -> None:
        self._socket.close()
        self._loop.turn()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_process_that_drains_may_say_that_it_is_busy(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)
    processes[0].drain(epoch, 100)

    processes[0].send(Message(MessageType.BUSY, epoch=epoch))
    processes[1].send(Message(MessageType.BUSY, epoch=epoch - 1))
    assert recorder.events == []
    processes[1].send(Message(MessageType.BUSY, epoch=epoch))

    assert recorder.events == [("busy", 0)]


def test_a_process_that_joins_a_watched_session_is_asked_too(
    session: Session, processes: list[Process], recorder: Recorder, paths: Paths, loop: Loop
) -> None:
    session.watch(0)
    (epoch,) = {process.receive().epoch for process in processes}
    joined = Process(paths, loop)
    asked = joined.receive()
    assert (asked.type, asked.epoch) == (MessageType.WATCH, epoch)
    for process in processes:
        process.send(Message(MessageType.IDLE, epoch=epoch))
    joined.send(Message(MessageType.IDLE, epoch=epoch + 1))
    assert recorder.events == []
    joined.send(Message(MessageType.IDLE, epoch=epoch))
    joined.send(Message(MessageType.IDLE, epoch=epoch))
    assert recorder.events == [("idle", 0)]
    joined.close()


def test_a_session_is_gone_with_its_last_process(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    assert session.processes == 2
    assert session.pids == [os.getpid()]
    close_gate(session, processes)
    processes[0].close()
    assert recorder.events == []
    processes[1].close()
    assert recorder.events == [("gone",)]
    assert (session.processes, session.pids) == (0, [])


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, processes: list[Process]) -> list[Process]:
    """As many processes as a session may have."""
    monkeypatch.setattr(session_module, "PROCESSES_MAX", len(processes))
    return processes


@pytest.mark.parametrize(
    "answers", [(GrantState.ACTIVE, errno.EAGAIN), (GrantState.REFUSED, errno.EPERM)]
)
def test_a_process_that_is_turned_away_is_told_whether_to_try_again(
    session: Session, full: list[Process], paths: Paths, loop: Loop, answers: tuple[GrantState, int]
) -> None:
    state, code = answers
    session.set_state(state)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as third:
        third.connect(str(paths.claim("a") / "socket"))
        loop.turn()
        answer = Message.unpack(third.recv(MESSAGE.size, socket.MSG_DONTWAIT))
        assert (answer.type, answer.value) == (MessageType.REFUSED, code)
        assert third.recv(MESSAGE.size, socket.MSG_DONTWAIT) == b""
    assert session.processes == len(full)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def session(paths: Paths, loop: Loop, recorder: Recorder) -> Iterator[Session]:
    paths.make()
    session = Session(paths, grant("a"), loop=loop, clock=lambda: NOW, events=recorder)
    session.set_state(GrantState.ACTIVE)
    session.open(0, NOW)
    yield session
    session.end()


@pytest.fixture
def processes(session: Session, paths: Paths, loop: Loop) -> Iterator[list[Process]]:
    """Two that are connected while the gate is open."""
    found = [Process(paths, loop), Process(paths, loop)]
    yield found
    for process in found:
        process.close()


def close_gate(session: Session, processes: list[Process]) -> int:
    """Ask all to drain; the epoch in which they are asked."""
    session.close_gate(0)
    (epoch,) = {process.receive().epoch for process in processes}
    return epoch


def test_a_drain_ends_when_the_last_process_was_idle(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)

    processes[0].drain(epoch, 200)
    assert recorder.events == []
    processes[1].drain(epoch, 100)

    assert recorder.events == [("drained", 0, 200)]


def test_a_process_that_joins_while_the_gate_closes_has_to_drain_too(
    session: Session, processes: list[Process], recorder: Recorder, paths: Paths, loop: Loop
) -> None:
    epoch = close_gate(session, processes)

    joined = Process(paths, loop)
    asked = joined.receive()
    assert (asked.type, asked.epoch) == (MessageType.CLOSING, epoch)
    for process in processes:
        process.drain(epoch, 100)
    assert recorder.events == []
    joined.drain(epoch, 300)

    assert recorder.events == [("drained", 0, 300)]
    joined.close()


def test_a_process_drains_once_whatever_it_says_afterwards(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)

    processes[0].drain(epoch, 100)
    processes[0].drain(epoch, 900)
    processes[1].drain(epoch, 200)
    processes[1].drain(epoch, 800)

    assert recorder.events == [("drained", 0, 200)]


def test_a_drain_of_an_earlier_epoch_counts_for_nothing(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)

    for process in processes:
        process.drain(epoch - 1, 100)

    assert recorder.events == []


def test_a_process_that_ends_owes_no_drain(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)

    processes[0].drain(epoch, 100)
    processes[1].close()

    assert recorder.events == [("drained", 0, NOW)]


def test_a_session_is_idle_when_all_its_processes_are(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    session.watch(0)
    (epoch,) = {process.receive().epoch for process in processes}

    for _ in range(2):
        processes[0].send(Message(MessageType.IDLE, epoch=epoch))
    assert recorder.events == []
    processes[1].send(Message(MessageType.IDLE, epoch=epoch))

    assert recorder.events == [("idle", 0)]
