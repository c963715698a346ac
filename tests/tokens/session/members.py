"""What a session meets: its processes, and who is told of its events."""

import socket

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    MESSAGE,
    PROTOCOL_NEWEST,
    VERSION,
    Message,
    MessageType,
)
from tokens.conversation import Loop

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
        self.queue(message)
        self._loop.turn()

    def queue(self, message: Message) -> None:
        """Send, and leave the loop to be turned."""
        self._socket.send(message.pack())

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


def close_gate(session: Session, processes: list[Process]) -> int:
    """Ask all to drain; the epoch in which they are asked."""
    session.close_gate(0)
    (epoch,) = {process.receive().epoch for process in processes}
    return epoch
