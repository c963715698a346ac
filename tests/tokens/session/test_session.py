"""The events that a session's messages cause."""

import errno
import os
import socket

import pytest

from kubeshare.tokens import session as session_module
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    MESSAGE,
    GrantState,
    Message,
    MessageType,
)
from tokens.conversation import Loop
from tokens.session.members import NOW, Process, Recorder, close_gate


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


def test_one_wake_up_is_one_call_of_recv_and_one_message(
    session: Session,
    processes: list[Process],
    recorder: Recorder,
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session.shut(0)
    recv = socket.socket.recv
    received: list[int] = []

    def count(connection: socket.socket, size: int) -> bytes:
        received.append(len(recorder.events))
        return recv(connection, size)

    monkeypatch.setattr(socket.socket, "recv", count)
    for process in (processes[0], processes[0], processes[1]):
        process.queue(Message(MessageType.WANT))

    wake_ups = loop.turn()

    assert received == [0, 1, 2]
    assert wake_ups == 3


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


def test_a_drain_that_only_waited_for_a_process_that_ends_is_over_and_owed(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)

    processes[0].drain(epoch, 100)
    processes[1].close()

    assert recorder.events == [("left", 0)]


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


def test_who_was_idle_before_the_session_was_watched_again_is_asked_again(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    session.watch(0)
    (epoch,) = {process.receive().epoch for process in processes}
    processes[0].send(Message(MessageType.IDLE, epoch=epoch))

    session.watch(0)
    processes[1].send(Message(MessageType.IDLE, epoch=epoch))
    assert recorder.events == []
    processes[0].send(Message(MessageType.IDLE, epoch=epoch))

    assert recorder.events == [("idle", 0)]


def test_the_end_of_work_from_before_the_gate_opened_again_is_told(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)
    processes[0].drain(epoch, 100)
    session.shut(0)
    session.open(0, NOW)

    processes[0].drain(epoch, 200)
    assert recorder.events == []
    for _ in range(2):
        processes[1].drain(epoch, 300)
    assert recorder.events == [("drained", 0, 300)]
    assert close_gate(session, processes) != epoch
    processes[1].drain(epoch, 400)

    assert recorder.events == [("drained", 0, 300)]


def test_the_end_of_earlier_work_does_not_end_a_drain(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)
    session.shut(0)
    session.open(0, NOW)
    close_gate(session, processes)

    for process in processes:
        process.drain(epoch, 100)

    assert recorder.events == []


def test_a_process_that_has_left_is_not_waited_for_when_earlier_work_ends(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)
    session.shut(0)
    session.open(0, NOW)
    processes[0].close()
    processes[1].drain(epoch, 100)

    assert recorder.events == [("drained", 0, 100)]
