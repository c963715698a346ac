"""One session's page and socket, with the test as the daemon.

Nothing happens by itself: the test accepts connections, reads the library's messages, and
changes gates. Every wait has a deadline, none sleeps.
"""

import select
import socket
from pathlib import Path
from typing import Self

from deadlines import DEADLINE_S
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare
from kubeshare.tokens.wire.page import PageWriter
from kubeshare.tokens.wire.protocol import (
    PROTOCOL_NEWEST,
    GateState,
    GrantState,
    Message,
    MessageType,
)

MIB = 1 << 20


class Connection:
    """One process's agent, after HELLO and WELCOME."""

    def __init__(self, stream: socket.socket, hello: Message) -> None:
        self.stream = stream
        self.hello = hello

    def receive(self) -> Message:
        """The next message; fails when none comes, or the connection ends."""
        return Message.unpack(self.stream.recv(64))

    def expect(self, kind: MessageType, *also: MessageType) -> Message:
        """The next message of a kind; WANT, BUSY and `also` are passed over."""
        while True:
            message = self.receive()
            if message.type is kind:
                return message
            assert message.type in (MessageType.WANT, MessageType.BUSY, *also), message

    def is_quiet(self) -> bool:
        """Whether no message waits to be read now; BUSY is passed over."""
        while select.select([self.stream], [], [], 0)[0]:
            if self.receive().type is not MessageType.BUSY:
                return False
        return True

    def send(self, kind: MessageType, cell: int = 0, epoch: int = 0) -> None:
        """Send a message to the library."""
        self.stream.send(Message(kind, cell, epoch).pack())

    def welcome(self, protocol: int = PROTOCOL_NEWEST) -> None:
        """Agree on a protocol."""
        self.stream.send(Message(MessageType.WELCOME, value=protocol).pack())

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False when a message comes instead."""
        try:
            return self.stream.recv(64) == b""
        except ConnectionResetError:  # it ended with something of ours unread
            return True


class FakeSession:
    """A folder with page and socket, and the file of counters.

    Args:
        folder: an empty one with a short path.
        gpus: what is granted, a cell each.
    """

    def __init__(self, folder: Path, gpus: list[GrantedShare]) -> None:
        self.folder = folder / "claim"
        self.folder.mkdir()
        self.counters = folder / "counters"
        counters.make(self.counters)
        self.page = PageWriter(
            self.folder / "page", Grant(version=GRANT_VERSION, claim="test", gpus=tuple(gpus))
        )
        self.page.set_grant_state(GrantState.ACTIVE)
        self.listener: socket.socket | None = None
        self._connections: list[Connection] = []
        self.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """Where a program without a container finds this session."""
        return {"KUBESHARE_CLAIM": str(self.folder), "KUBESHARE_COUNTERS": str(self.counters)}

    def listen(self) -> None:
        """Be there: as a daemon that has just started."""
        path = self.folder / "socket"
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(DEADLINE_S)
        self.listener.bind(str(path))
        self.listener.listen()

    def stop(self) -> None:
        """Be gone: as a daemon that was killed. The page stays as it is."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for connection in self._connections:
            connection.stream.close()
        self._connections.clear()

    def accept(self, *, welcome: bool = True, protocol: int = PROTOCOL_NEWEST) -> Connection:
        """The next process that sends HELLO, welcomed with this protocol.

        One that has given up before it was welcomed comes again.
        """
        assert self.listener is not None
        while True:
            stream, _ = self.listener.accept()
            stream.settimeout(DEADLINE_S)
            connection = Connection(stream, Message.unpack(stream.recv(64)))
            assert connection.hello.type is MessageType.HELLO
            self._connections.append(connection)
            try:
                if welcome:
                    connection.welcome(protocol)
            except BrokenPipeError:
                continue
            return connection

    def nobody_connects(self) -> bool:
        """Whether no connection waits to be accepted now."""
        assert self.listener is not None
        return not select.select([self.listener], [], [], 0)[0]

    def open(self, cell: int = 0) -> None:
        """Open a gate."""
        self.page.set_gate(cell, GateState.OPEN)

    def close(self, cell: int = 0) -> None:
        """Close a gate without a drain."""
        self.page.set_gate(cell, GateState.CLOSED)

    def drain(self, connection: Connection, cell: int = 0) -> Message:
        """End a turn: CLOSING, the library's DRAINED, CLOSED."""
        self.page.set_gate(cell, GateState.CLOSING)
        epoch = self.page.epoch(cell)
        connection.send(MessageType.CLOSING, cell, epoch)
        # On a slow machine what was watched may have become idle before, and the answer to a
        # drain that was given up may come late.
        drained = connection.expect(MessageType.DRAINED, MessageType.IDLE)
        while drained.epoch < epoch and drained.type == MessageType.DRAINED:
            drained = connection.expect(MessageType.DRAINED, MessageType.IDLE)
        assert (drained.cell, drained.epoch) == (cell, epoch)
        self.close(cell)
        return drained

    def charged(self, cell: int = 0) -> int:
        """Bytes that the living processes of the claim are charged for."""
        return counters.read(self.counters)[cell].memory_bytes
