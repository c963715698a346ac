"""Two sessions and their arbiter, with a clock set by hand."""

import select
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeshare.tokens.arbitration import Arbitration, Rules
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import (
    PROTOCOL_NEWEST,
    VERSION,
    GateState,
    GrantState,
    Message,
    MessageType,
)
from kubeshare.tokens.wire.rate import Spare
from tokens.helpers import GPU_A, GPU_B, Page, grant


class Loop:
    """An event loop that calls the readers of ready descriptors, once a turn.

    Attributes:
        later: what is to be called later, with the delays in seconds; the test calls it.
    """

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.later: list[tuple[float, Callable[..., object]]] = []

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def call_later(self, delay: float, callback: Callable[..., object]) -> None:
        self.later.append((delay, callback))

    def turn(self) -> int:
        """Call them until none is ready; how many calls that took."""
        calls = 0
        while ready := select.select(list(self.readers), [], [], 0)[0]:
            for fd in ready:
                if fd in self.readers:
                    self.readers[fd]()
                    calls += 1
        return calls


class Bench:
    """Two sessions on the same two GPUs, their arbiter, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "run")
        self.paths.make()
        self.loop = Loop()
        self.now = 1_000_000_000
        self.spare = Spare()
        self.deadline: int | None = None
        self.tokens = Arbitration(Rules(), lambda: self.now, self.note_deadline, lambda _: None)
        self.sessions = {name: self._session(name) for name in ("bad", "good")}
        self.pages = {name: Page(self.paths.claim(name) / "page") for name in self.sessions}

    def note_deadline(self, at_ns: int | None) -> None:
        self.deadline = at_ns

    def _session(self, name: str) -> Session:
        session = Session(
            self.paths,
            grant(name, gpus=(GPU_A, GPU_B)),
            loop=self.loop,
            clock=lambda: self.now,
            tokens=self.tokens,
            events=self,
            spare=self.spare,
        )
        session.set_state(GrantState.ACTIVE)
        self.tokens.add(session)
        return session

    def connect(self, name: str) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.connect(str(self.paths.claim(name) / "socket"))
        self.loop.turn()
        return made

    def send(self, connection: socket.socket, data: bytes) -> None:
        try:
            connection.send(data)
        except OSError:
            return
        self.loop.turn()

    def step(self, elapsed_ns: int) -> None:
        self.now += elapsed_ns
        if self.deadline is not None and self.deadline <= self.now:
            self.tokens.tick()
        for cell in range(2):
            gates = [page.gate_of(cell) for page in self.pages.values()]
            assert gates.count(GateState.CLOSED) >= 1, "two have the same GPU"

    # Session events, handled like in the daemon.

    def on_gone(self, session: Session) -> None:
        self.tokens.gone(session.name)

    def on_dropped(self, session: Session, reason: str) -> None:
        assert session.name == "bad", reason

    def on_paused(self, session: Session, seconds: float) -> None:
        raise AssertionError("so few messages are not too many")


Datagram = tuple[MessageType, int, int, int, int] | bytes
"""A message (its kind, cell, epoch relative to the page's, time, value), or any bytes."""

Step = tuple[int, Datagram, int]
"""Which of two processes sends it, and the ns until the next."""

STEPS_MAX = 40

_STEP = struct.Struct("=BBBbBQQ")


def converse(steps: Iterable[Step]) -> None:
    """Two processes of a claim send these next to an honest one, which loses nothing.

    Raises:
        AssertionError: it does; or two have the same GPU, or the honest one is cut off.
    """
    with _bench() as bench:
        hello = Message(MessageType.HELLO, epoch=PROTOCOL_NEWEST, value=VERSION).pack()
        good = bench.connect("good")
        bench.send(good, hello)
        bad = [bench.connect("bad") for _ in range(2)]
        for connection in bad:
            bench.send(connection, hello)
        for which, datagram, elapsed in steps:
            bench.send(bad[which], _encode(bench, datagram))
            bench.step(elapsed)

        for connection in bad:
            connection.close()
        bench.loop.turn()
        bench.send(good, Message(MessageType.WANT, value=3).pack())
        gates = [bench.pages["good"].gate_of(cell) for cell in range(2)]
        assert gates == [GateState.OPEN] * 2
        for session in bench.sessions.values():
            session.end()
        good.close()


def steps_of(data: bytes) -> Iterator[Step]:
    """The steps that these bytes encode; any bytes encode some."""
    kinds = list(MessageType)
    for _ in range(STEPS_MAX):
        if len(data) < _STEP.size:
            return
        how, elapsed, kind, age, cell, time_ns, value = _STEP.unpack_from(data)
        data = data[_STEP.size :]
        datagram: Datagram = (kinds[kind % len(kinds)], cell % 4, age, time_ns, value)
        if how & 2:
            datagram, data = data[: kind % 64], data[kind % 64 :]
        yield how & 1, datagram, elapsed * 1_000_000


def _encode(bench: Bench, datagram: Datagram) -> bytes:
    if isinstance(datagram, bytes):
        return datagram
    kind, cell, age, time_ns, value = datagram
    epoch = bench.pages["bad"].cell(cell % 2)[0] + age
    return Message(kind, cell, epoch % 2**32, 1, time_ns, value).pack()


@contextmanager
def _bench() -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/dev/shm"))
    try:
        yield Bench(folder)
    finally:
        shutil.rmtree(folder)
