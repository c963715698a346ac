"""One claim's folder, page and connections on the daemon's side.

The listening socket is the identity: whoever connects to it belongs to this claim,
whatever it says. A process can only want, drain and be idle on its claim's own cells;
anything else, or not reading the replies, costs it the connection, and no other process
anything. A claim that sends too many messages is not listened to for a while: what it has
sent waits in its sockets, whose room is limited.
"""

import os
import select
import shutil
from collections.abc import Callable
from typing import Final, Protocol

from kubeshare.core.token import Tally
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.tallies import Tallies
from kubeshare.tokens.wire.average_use import AverageUse
from kubeshare.tokens.wire.cell import Cell
from kubeshare.tokens.wire.connection import Connection, listen
from kubeshare.tokens.wire.page import PageWriter, revoke
from kubeshare.tokens.wire.protocol import (
    MESSAGE,
    PROCESSES_MAX,
    PROTOCOL_NEWEST,
    PROTOCOL_OLDEST,
    VERSION,
    GateState,
    GrantState,
    Message,
    MessageError,
    MessageType,
    agreed_protocol,
)
from kubeshare.tokens.wire.rate import Flow, Rate, Spare

_ACCEPTS_AT_ONCE = 16
_ACCEPTS_PER_SECOND = 20
_PAUSE_SECONDS = 1.0

# As names of the module: looking a member up in its enumeration takes ten times as long.
_OPEN: Final = GateState.OPEN
_CLOSED: Final = GateState.CLOSED
_CLOSING: Final = GateState.CLOSING
_CLOSING_MESSAGE: Final = MessageType.CLOSING
_WATCH_MESSAGE: Final = MessageType.WATCH

_NOT_PERMITTED = 1
_AGAIN = 11
_PROTOCOL_NOT_SUPPORTED = 93


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...  # noqa: D102
    def remove_reader(self, fd: int) -> bool: ...  # noqa: D102
    def call_later(self, delay: float, callback: Callable[..., object]) -> object: ...  # noqa: D102


class TokenEvents(Protocol):
    """Receives what the processes of a session say about its turns, taken together."""

    def on_want(self, session: "Session", gpus: list[str]) -> None:
        """A launch waits at a closed gate; these GPUs are wanted together."""

    def on_drained(self, session: "Session", cell: int, idle_ns: int) -> None:
        """The GPU finished the work of the last of the processes at `idle_ns`."""

    def on_busy(self, session: "Session", cell: int) -> None:
        """A process that drains is alive; its work takes long."""

    def on_idle(self, session: "Session", cell: int) -> None:
        """No process has anything queued."""

    def on_connected(self, session: "Session") -> None:
        """A process has connected; where the end of work is owed it is asked for that."""

    def on_left(self, session: "Session", cell: int) -> None:
        """The last of the processes that had yet to drain is gone; others are left."""


class SessionEvents(Protocol):
    """Receives what else happens to a session."""

    def on_gone(self, session: "Session") -> None:
        """The last connection is closed."""

    def on_dropped(self, session: "Session", reason: str) -> None:
        """A connection was closed for what its process did."""

    def on_paused(self, session: "Session", seconds: float) -> None:
        """The processes sent too many messages: for so long they are not listened to."""


class Session:
    """The live connection of a claim's processes to the daemon.

    Args:
        paths: of the run folder.
        grant: what the claim may use.
        loop: the event loop.
        clock: ns on CLOCK_MONOTONIC.
        tokens: receives what the processes say about its turns.
        events: receives what else happens.
        spare: of the messages that all claims may send beyond their own rates.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        paths: Paths,
        grant: Grant,
        *,
        loop: Loop,
        clock: Callable[[], int],
        tokens: TokenEvents,
        events: SessionEvents,
        spare: Spare,
    ) -> None:
        self.grant = grant
        self.name = grant.claim
        self.state = GrantState.PENDING
        self._paths = paths
        self._loop = loop
        self._clock = clock
        self._tokens = tokens
        self._events = events
        self._folder = paths.claim(grant.claim)
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(0o755)  # whatever the umask: any user of a container may enter
        counters.make(paths.counters(grant.claim))
        self._page = PageWriter(self._folder / "page", grant)
        self._tallies = Tallies(paths.tally(grant.claim), len(grant.gpus))
        self._used = AverageUse(
            [self._tallies.read(cell).charged_ns for cell in range(len(grant.gpus))], clock()
        )
        self._cells = [Cell() for _ in grant.gpus]
        self.gpus = [gpu.uuid for gpu in grant.gpus]
        self._cell_of = {uuid: cell for cell, uuid in enumerate(self.gpus)}
        self._connections: set[Connection] = set()
        self._processes: set[Connection] = set()  # those that sent HELLO
        self._accepts = Rate(_ACCEPTS_PER_SECOND, PROCESSES_MAX, clock())
        self._flow = Flow(spare, clock())
        self._is_listening = True
        self._handlers = {
            MessageType.WANT: self._want,
            MessageType.DRAINED: self._drained,
            MessageType.BUSY: self._busy,
            MessageType.IDLE: self._idle,
        }
        self._counters = counters.hold(paths.counters(grant.claim))
        try:
            self._listener = listen(self._folder)
        except OSError:
            os.close(self._counters)
            raise
        loop.add_reader(self._listener.fileno(), self._accept)

    @property
    def processes(self) -> int:
        """How many processes are connected."""
        return len(self._processes)

    @property
    def pids(self) -> list[int]:
        """The pids of the connected processes that the daemon can see."""
        return sorted({connection.pid for connection in self._processes if connection.pid})

    def undrained_pids(self, index: int) -> list[int]:
        """Those of the processes that have not answered the last CLOSING of a gate."""
        draining = self._cells[index].draining
        return sorted({connection.pid for connection in draining if connection.pid})

    def set_overhead(self, uuid: str, overhead_bytes: int) -> None:
        """Publish what the driver counts on a GPU beyond what the library tracks.

        Raises:
            LookupError: the claim holds no share of this GPU.
        """
        if uuid not in self._cell_of:
            raise LookupError(f"claim {self.name} holds no share of {uuid}")
        self._page.set_overhead(self._cell_of[uuid], overhead_bytes)

    def cell_of(self, uuid: str) -> int:
        """The index of the cell of one of its GPUs."""
        return self._cell_of[uuid]

    def tallies(self) -> dict[str, Tally]:
        """The saved counts, by GPU."""
        return {uuid: self._tallies.read(cell) for uuid, cell in self._cell_of.items()}

    def note_gap(self) -> None:
        """Count that no daemon ran for a time in which the session may have used its GPUs."""
        self._tallies.note_gap()

    def save_tally(self, index: int, tally: Tally) -> None:
        """Save the counts of a cell, and publish on the page how much it used."""
        self._tallies.write(index, tally)
        now = self._clock()
        self._used.charge(index, tally.charged_ns, now)
        self._page.set_use(index, self._used.at(index, now), now)

    def change(self, grant: Grant) -> None:
        """Apply a grant of other amounts on the same GPUs in the same order."""
        self.grant = grant
        self._page.change(grant)

    def set_state(self, state: GrantState) -> None:
        """Publish on the page whether anything may start."""
        self.state = state
        self._page.set_grant_state(state)

    def open(self, index: int, lease_end_ns: int) -> None:
        """Open a gate."""
        cell = self._cells[index]
        cell.late, cell.late_epoch = cell.draining, cell.asked_epoch
        cell.draining = set()
        cell.asked_epoch = None
        cell.watched = False
        cell.idle = set()
        cell.is_owed = False  # the next CLOSING asks for it
        if self._page.gate(index) is _CLOSED:
            now = self._clock()
            self._page.set_use(index, self._used.at(index, now), now)
        self._page.set_lease_end(index, lease_end_ns)
        self._page.set_gate(index, _OPEN)

    def extend(self, index: int, lease_end_ns: int) -> None:
        """Move the end of an open gate's lease."""
        self._page.set_lease_end(index, lease_end_ns)

    def watch(self, index: int) -> None:
        """Ask all processes to report when they have nothing queued, whatever they said before."""
        self._cells[index].watched = True
        self._cells[index].idle = set()
        self._send_all(_WATCH_MESSAGE, index)

    def close_gate(self, index: int) -> None:
        """Ask all processes to drain; without any, the drain ends at once."""
        cell = self._cells[index]
        self._page.set_gate(index, _CLOSING)
        cell.asked_epoch = self._page.epoch(index)
        cell.draining = set(self._processes)
        cell.late = set()
        cell.drained_ns = 0
        cell.watched = False
        self._send_all(_CLOSING_MESSAGE, index)
        if not cell.draining:
            self._tokens.on_drained(self, index, self._clock())

    def shut(self, index: int) -> None:
        """Close a gate; a process that has not drained still has to answer."""
        self._page.shut_gate(index)

    def release(self) -> None:
        """Close the sockets and keep the files: the daemon ends, the grant does not."""
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        os.close(self._counters)
        for connection in self._connections:
            self._loop.remove_reader(connection.fileno())
            connection.close()
        self._connections = set()
        self._processes = set()

    def end(self) -> None:
        """End the session: publish that on the page, then remove the files."""
        self.set_state(GrantState.REVOKED)
        self.release()
        remove_files(self._paths, self.name)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors: others may close some
                self._pause_accepting(f"cannot accept: {error.strerror}")
                return
            accepted.setblocking(False)
            self._admit(Connection(accepted))
            if not self._accepts.allows(self._clock()):
                self._pause_accepting(f"more than {_ACCEPTS_PER_SECOND} connections a second")
                return

    def _admit(self, connection: Connection) -> None:
        active = self.state is GrantState.ACTIVE
        if active and len(self._connections) < PROCESSES_MAX:
            self._connections.add(connection)
            if self._is_listening:
                self._listen_to(connection)
            return
        connection.send(Message(MessageType.REFUSED, value=_AGAIN if active else _NOT_PERMITTED))
        connection.close()

    def _pause_accepting(self, reason: str) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._accept_again)
        self._events.on_dropped(self, reason)

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _listen_to(self, connection: Connection) -> None:
        self._loop.add_reader(connection.fileno(), self._receive, connection)

    def _receive(self, connection: Connection) -> None:
        """Handle one message; for another one the loop calls again."""
        data = connection.receive(MESSAGE.size + 1)
        if data is None:
            return
        if not data:
            self._close(connection)
            return
        is_answer = False
        try:
            is_answer = self._handle(connection, Message.unpack(data))
        except MessageError as error:
            self._drop(connection, str(error))
        pause = self._flow.pause_after(self._clock(), is_answer=is_answer)
        if pause:
            self._pause_listening(pause)

    def _pause_listening(self, seconds: float) -> None:
        """Read no more messages for a while; a turn that the session has ends with it.

        Others would wait for its answers, which are among those messages.
        """
        if any(self._page.gate(index) is not _CLOSED for index in range(len(self._cells))):
            for connection in list(self._connections):
                self._drop(connection, "too many messages during its turn")
        self._is_listening = False
        for connection in self._connections:
            self._loop.remove_reader(connection.fileno())
        self._loop.call_later(seconds, self._listen_again)
        self._events.on_paused(self, seconds)

    def _listen_again(self) -> None:
        self._is_listening = True
        for connection in self._hung_up():
            self._close(connection)  # without what it sent before that
        for connection in self._connections:
            self._listen_to(connection)

    def _hung_up(self) -> list[Connection]:
        """The connections whose process is gone, though it may have left messages."""
        poll = select.poll()
        by_fd = {connection.fileno(): connection for connection in self._connections}
        for fd in by_fd:
            poll.register(fd, 0)
        return [by_fd[fd] for fd, events in poll.poll(0) if events & select.POLLHUP]

    def _handle(self, connection: Connection, message: Message) -> bool:
        """Handle a message; whether it is the first answer to what the daemon did."""
        if connection.protocol is None:
            self._hello(connection, message)
            return False
        if message.cell >= len(self._cells):
            raise MessageError(f"cell {message.cell} of {len(self._cells)}")
        handle = self._handlers.get(message.type)
        if handle is None:
            raise MessageError(f"{message.type.name} is not for a process to send")
        return handle(connection, message)

    def _want(self, connection: Connection, message: Message) -> bool:
        is_first = connection.wants_first(
            message.cell, message.epoch, self._page.epoch(message.cell)
        )
        connection.cells = message.value | 1 << message.cell
        self._tokens.on_want(self, self._gpus_in_use())
        return is_first

    def _gpus_in_use(self) -> list[str]:
        """The GPUs that any process wants: those of one job may wait for each other's GPUs."""
        cells = 0
        for process in self._processes:
            cells |= process.cells
        return [uuid for cell, uuid in enumerate(self.gpus) if cells >> cell & 1]

    def _hello(self, connection: Connection, message: Message) -> None:
        if message.type is not MessageType.HELLO:
            raise MessageError(f"the first message is {message.type.name}, not HELLO")
        connection.protocol = agreed_protocol(message.value, message.epoch)
        if message.version != VERSION or connection.protocol is None:
            connection.send(Message(MessageType.REFUSED, value=_PROTOCOL_NOT_SUPPORTED))
            raise MessageError(
                f"it speaks protocols from {message.value} on, these are "
                f"{PROTOCOL_OLDEST} to {PROTOCOL_NEWEST}"
            )
        self._processes.add(connection)
        self._send(connection, Message(MessageType.WELCOME, value=connection.protocol))
        for index, cell in enumerate(self._cells):
            gate, epoch = self._page.gate(index), self._page.epoch(index)
            if gate is GateState.CLOSING or cell.is_owed:
                cell.is_owed = False
                cell.asked_epoch = epoch
                cell.draining.add(connection)
                self._send(connection, Message(MessageType.CLOSING, index, epoch))
            elif gate is GateState.OPEN and cell.watched:
                self._send(connection, Message(MessageType.WATCH, index, epoch))
        self._tokens.on_connected(self)

    def _drained(self, connection: Connection, message: Message) -> bool:
        cell = self._cells[message.cell]
        if message.epoch == cell.late_epoch and connection in cell.late:
            cell.late.discard(connection)
            if not cell.late:
                self._tokens.on_drained(self, message.cell, message.time_ns)
            return True
        if message.epoch != cell.asked_epoch or connection not in cell.draining:
            return False
        cell.draining.discard(connection)
        cell.drained_ns = max(cell.drained_ns, message.time_ns)
        if not cell.draining:
            self._tokens.on_drained(self, message.cell, cell.drained_ns)
        return True

    def _busy(self, connection: Connection, message: Message) -> bool:
        cell = self._cells[message.cell]
        if message.epoch != cell.asked_epoch or connection not in cell.draining:
            return False
        self._tokens.on_busy(self, message.cell)
        return connection.is_busy_due(message.cell, self._clock())

    def _idle(self, connection: Connection, message: Message) -> bool:
        cell = self._cells[message.cell]
        if not cell.watched or message.epoch != self._page.epoch(message.cell):
            return False
        is_first = connection not in cell.idle
        cell.idle.add(connection)
        if cell.idle >= self._processes:
            cell.watched = False
            self._tokens.on_idle(self, message.cell)
        return is_first

    def _send_all(self, kind: MessageType, index: int) -> None:
        message = Message(kind, index, self._page.epoch(index))
        for connection in list(self._processes):
            self._send(connection, message)

    def _send(self, connection: Connection, message: Message) -> None:
        if not connection.send(message):
            self._drop(connection, "it does not read its messages")

    def _drop(self, connection: Connection, reason: str) -> None:
        self._close(connection)
        self._events.on_dropped(self, reason)

    def _close(self, connection: Connection) -> None:
        """Forget a connection; what it has not answered is asked of the next one."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._loop.remove_reader(connection.fileno())
        connection.close()
        if connection not in self._processes:
            return
        self._processes.discard(connection)
        if not self._processes:
            for index, cell in enumerate(self._cells):
                is_open = self._page.gate(index) is GateState.OPEN
                cell.is_owed |= is_open or bool(cell.draining)
                cell.draining.clear()
            self._events.on_gone(self)
            return
        for index, cell in enumerate(self._cells):
            self._settle(connection, index, cell)

    def _settle(self, connection: Connection, index: int, cell: Cell) -> None:
        cell.idle.discard(connection)
        cell.late.discard(connection)
        if connection in cell.draining:
            cell.draining.discard(connection)
            if not cell.draining:
                cell.is_owed = True
                self._tokens.on_left(self, index)


def remove_files(paths: Paths, claim: str) -> None:
    """Remove the files that a daemon made for a claim, those that there are; its page says so.

    Raises:
        GrantError: that is no valid name of a claim.
    """
    revoke(paths.claim(claim) / "page")
    shutil.rmtree(paths.claim(claim), ignore_errors=True)
    for file in (paths.counters(claim), paths.tally(claim), paths.status(claim)):
        file.unlink(missing_ok=True)
