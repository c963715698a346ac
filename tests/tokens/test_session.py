"""The events that a session's messages cause."""

import errno
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from kubeshare.tokens import session as session_module
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    BUSY_INTERVAL_NS,
    MESSAGE,
    PROTOCOL_NEWEST,
    VERSION,
    GrantState,
    Message,
    MessageType,
)
from kubeshare.tokens.wire.rate import ANSWERS_AT_ONCE, MESSAGES_AT_ONCE, Rate
from tokens.conversation import Loop
from tokens.helpers import GPU_A, grant

NOW = 1_000_000
SECOND_NS = 1_000_000_000


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

    def on_connected(self, _session: Session) -> None:
        """Each test connects processes."""

    def on_left(self, _session: Session, cell: int) -> None:
        self.events.append(("left", cell))

    def on_gone(self, _session: Session) -> None:
        self.events.append(("gone",))

    def on_dropped(self, _session: Session, reason: str) -> None:
        self.events.append(("dropped", reason))

    def on_paused(self, _session: Session, seconds: float) -> None:
        self.events.append(("paused", seconds))


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


class Clock:
    """A clock set by hand, ns."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
def session(paths: Paths, loop: Loop, recorder: Recorder, clock: Clock) -> Iterator[Session]:
    paths.make()
    session = Session(
        paths, grant("a"), loop=loop, clock=clock, events=recorder, spare=Rate(0, 0, NOW)
    )
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
