"""Claims that send more than a session reads, and those that must not count as such."""

import socket
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    BUSY_INTERVAL_NS,
    PROCESSES_MAX,
    PROTOCOL_NEWEST,
    VERSION,
    Message,
    MessageType,
)
from kubeshare.tokens.wire.rate import ANSWERS_AT_ONCE, MESSAGES_AT_ONCE
from tokens.conversation import Loop
from tokens.helpers import GPU_A
from tokens.session.members import NOW, Clock, Process, Recorder, close_gate

SECOND_NS = 1_000_000_000


@pytest.fixture
def flooded(session: Session, processes: list[Process], recorder: Recorder) -> Recorder:
    """The first process has sent a few more WANTs at once than are read; both have said HELLO."""
    session.shut(0)
    for _ in range(MESSAGES_AT_ONCE - len(processes) + 5):
        processes[0].send(Message(MessageType.WANT))
    *read, pause = recorder.events
    assert read == [("want", GPU_A)] * (MESSAGES_AT_ONCE - len(processes) + 1)
    assert pause == ("paused", 0.05)
    recorder.events.clear()
    return recorder


def test_a_claim_that_sends_too_much_is_not_read_for_a_while(
    flooded: Recorder, processes: list[Process], loop: Loop
) -> None:
    for process in processes:
        process.send(Message(MessageType.WANT))
    assert flooded.events == [], "none of its processes is read"

    [(delay, listen_again)] = loop.later
    assert delay == 0.05
    listen_again()
    loop.turn()

    assert flooded.events == [("want", GPU_A), ("paused", 0.1)]


def test_a_process_that_joins_meanwhile_is_read_afterwards(
    flooded: Recorder, session: Session, paths: Paths, loop: Loop
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as joined:
        joined.connect(str(paths.claim("a") / "socket"))
        joined.send(Message(MessageType.HELLO, epoch=PROTOCOL_NEWEST, value=VERSION).pack())
        loop.turn()
        assert session.processes == 2
        while loop.later:
            loop.later.pop()[1]()
            loop.turn()
        assert session.processes == 3


def test_what_a_process_that_is_gone_has_left_is_not_read(
    flooded: Recorder, session: Session, processes: list[Process], loop: Loop
) -> None:
    for process in processes:
        process.close()
    assert session.processes == 2
    loop.later.pop()[1]()
    assert session.processes == 0
    assert flooded.events[-1] == ("gone",)
    loop.turn()
    assert flooded.events[-1] == ("gone",)


def test_a_claim_that_floods_during_its_turn_loses_it(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    for _ in range(MESSAGES_AT_ONCE - len(processes) + 1):
        processes[0].send(Message(MessageType.WANT))
    dropped = ("dropped", "too many messages during its turn")
    assert recorder.events.count(dropped) == 2
    assert recorder.events.count(("gone",)) == 1
    assert recorder.events[-1] == ("paused", 0.05)
    assert session.processes == 0


def take_turn(session: Session, processes: list[Process], epoch: int) -> int:
    """Have a turn that ends when all are idle, from a gate closed in `epoch`; the next epoch."""
    first, *others = processes
    first.send(Message(MessageType.WANT, epoch=epoch))
    session.open(0, NOW)
    for process in others:
        process.send(Message(MessageType.WANT, epoch=epoch))
    session.watch(0)
    for process in processes:
        process.send(Message(MessageType.IDLE, epoch=process.receive().epoch))
    asked = close_gate(session, processes)
    for process in processes:
        process.drain(asked, NOW)
    session.shut(0)
    return asked


@pytest.fixture
def connect(session: Session, paths: Paths, loop: Loop) -> Iterator[Callable[[int], list[Process]]]:
    """Connects so many processes while the gate is open."""
    found: list[Process] = []

    def connect(count: int) -> list[Process]:
        found.extend(Process(paths, loop) for _ in range(count))
        return found

    yield connect
    for process in found:
        process.close()


@pytest.mark.parametrize("load", [(64, 5), (16, 40)])
def test_an_honest_claim_of_many_processes_is_never_paused(
    session: Session,
    connect: Callable[[int], list[Process]],
    recorder: Recorder,
    clock: Clock,
    load: tuple[int, int],
) -> None:
    count, turns_per_second = load
    processes = connect(count)
    epoch = close_gate(session, processes)
    for process in processes:
        process.drain(epoch, NOW)
    session.shut(0)
    turns = 3 * turns_per_second
    for _ in range(turns):
        clock.now += SECOND_NS // turns_per_second
        epoch = take_turn(session, processes, epoch)
    seen = [event[0] for event in recorder.events]
    assert seen.count("want") == count * turns
    assert (seen.count("idle"), seen.count("drained")) == (turns, turns + 1)
    assert {"paused", "dropped"}.isdisjoint(seen)
    assert session.processes == count


def test_many_processes_that_drain_for_long_are_never_paused(
    session: Session,
    connect: Callable[[int], list[Process]],
    recorder: Recorder,
    clock: Clock,
) -> None:
    processes = connect(64)
    epoch = close_gate(session, processes)
    for _ in range(100):
        clock.now += BUSY_INTERVAL_NS
        for process in processes:
            process.send(Message(MessageType.BUSY, epoch=epoch))
    assert recorder.events == [("busy", 0)] * 6400


def test_a_process_that_says_that_it_is_busy_more_often_than_it_should_floods(
    session: Session, processes: list[Process], recorder: Recorder
) -> None:
    epoch = close_gate(session, processes)
    for _ in range(MESSAGES_AT_ONCE):
        processes[0].send(Message(MessageType.BUSY, epoch=epoch))
        if not session.processes:
            break
    assert recorder.events[-1] == ("paused", 0.05)


@pytest.mark.parametrize("kind", [MessageType.IDLE, MessageType.DRAINED, MessageType.WANT])
def test_who_answers_again_and_again_floods(
    session: Session, processes: list[Process], recorder: Recorder, kind: MessageType
) -> None:
    session.watch(0)
    (epoch,) = {process.receive().epoch for process in processes}
    if kind is not MessageType.IDLE:
        epoch = close_gate(session, processes)
    sent = 0
    while session.processes:
        # WANTs of the present epoch and the one before in turn: each epoch has one first.
        stale = sent % 2 if kind is MessageType.WANT else 0
        processes[0].send(Message(kind, epoch=epoch - stale))
        sent += 1
        assert sent <= MESSAGES_AT_ONCE
    assert sent == MESSAGES_AT_ONCE - len(processes) + 2
    assert recorder.events[-1] == ("paused", 0.05)


def test_who_ends_its_turns_at_once_and_asks_for_the_next_floods(
    session: Session, connect: Callable[[int], list[Process]], recorder: Recorder
) -> None:
    processes = connect(1)
    epoch = close_gate(session, processes)
    processes[0].drain(epoch, NOW)
    session.shut(0)
    hello, first_drain = 1, 1
    left = ANSWERS_AT_ONCE + MESSAGES_AT_ONCE - hello - first_drain
    for _ in range(left // 3):
        epoch = take_turn(session, processes, epoch)
    assert "paused" not in {event[0] for event in recorder.events}
    for _ in range(left % 3 + 1):
        processes[0].send(Message(MessageType.BUSY))
    assert recorder.events[-1] == ("paused", 0.05)


def test_a_claim_that_connects_again_and_again_is_accepted_twenty_times_a_second(
    session: Session, paths: Paths, loop: Loop, recorder: Recorder, clock: Clock
) -> None:
    def accepted_until_paused() -> int:
        """How many connect, one after another, before one is too many and all have to wait."""
        for accepted in count():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connecting:
                connecting.connect(str(paths.claim("a") / "socket"))
                loop.turn()
                if recorder.events[-1:] == [("dropped", "more than 20 connections a second")]:
                    recorder.events.append(("read",))
                    return accepted
        raise AssertionError

    assert accepted_until_paused() == PROCESSES_MAX
    for _ in range(3):
        [(delay, accept_again)] = loop.later
        loop.later.clear()
        assert delay == 1.0
        clock.now += SECOND_NS
        accept_again()
        assert accepted_until_paused() == 20
