"""Whatever two processes of a claim say, in whatever order, next to an honest one."""

import json
import select
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.tokens.arbitration import Arbitration, Rules
from kubeshare.tokens.claim import Claim
from kubeshare.tokens.files import GrantError, Paths, read_grant
from kubeshare.tokens.wire import (
    MESSAGE,
    PROTOCOL_NEWEST,
    VERSION,
    GateState,
    GrantState,
    Message,
    MessageError,
    MessageType,
)
from tokens.helpers import GPU_A, GPU_B, Page, grant


class Loop:
    """Calls who is to be called when something can be read, once a turn."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def call_later(self, delay: float, callback: Callable[..., object]) -> None:
        raise AssertionError("so few connections are not too many")

    def turn(self) -> None:
        while ready := select.select(list(self.readers), [], [], 0)[0]:
            for fd in ready:
                if fd in self.readers:
                    self.readers[fd]()


class Bench:
    """Two claims of the same two GPUs, their arbiter, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "run")
        self.paths.make()
        self.loop = Loop()
        self.now = 1_000_000_000
        self.deadline: int | None = None
        self.tokens = Arbitration(Rules(), lambda: self.now, self.note_deadline, lambda _: None)
        self.claims = {name: self._claim(name) for name in ("bad", "good")}
        self.pages = {name: Page(self.paths.claim(name) / "page") for name in self.claims}

    def note_deadline(self, at_ns: int | None) -> None:
        self.deadline = at_ns

    def _claim(self, name: str) -> Claim:
        claim = Claim(
            self.paths,
            grant(name, gpus=(GPU_A, GPU_B)),
            loop=self.loop,
            clock=lambda: self.now,
            events=self,
        )
        claim.set_state(GrantState.ACTIVE)
        self.tokens.add(claim)
        return claim

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

    # What claims tell; as the daemon does it.

    def on_want(self, claim: Claim, gpus: list[str]) -> None:
        self.tokens.want(claim.name, gpus)

    def on_drained(self, claim: Claim, cell: int, idle_ns: int) -> None:
        self.tokens.drained(claim.name, claim.grant.gpus[cell].uuid, idle_ns)

    def on_busy(self, claim: Claim, cell: int) -> None:
        self.tokens.busy(claim.name, claim.grant.gpus[cell].uuid)

    def on_idle(self, claim: Claim, cell: int) -> None:
        self.tokens.idle(claim.name, claim.grant.gpus[cell].uuid)

    def on_gone(self, claim: Claim) -> None:
        self.tokens.gone(claim.name)

    def on_dropped(self, claim: Claim, reason: str) -> None:
        assert claim.name == "bad", reason


# What one says: which of two processes, a message (its epoch from the page's present one),
# or anything at all; and how long it is until the next.
messages = st.tuples(
    st.sampled_from([*MessageType, MessageType.WANT, MessageType.DRAINED]),
    st.integers(0, 3),
    st.integers(-2, 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1) | st.integers(0, 3),
)
said = st.tuples(st.integers(0, 1), messages | st.binary(max_size=40), st.integers(0, 150_000_000))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(said, max_size=40))
def test_whatever_a_process_says_nobody_else_loses_a_turn(
    happened: list[tuple[int, tuple[MessageType, int, int, int, int] | bytes, int]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/dev/shm"))
    try:
        bench = Bench(folder)
        hello = Message(MessageType.HELLO, epoch=PROTOCOL_NEWEST, value=VERSION).pack()
        good = bench.connect("good")
        bench.send(good, hello)
        bad = [bench.connect("bad") for _ in range(2)]
        for connection in bad:
            bench.send(connection, hello)
        for which, words, elapsed in happened:
            if isinstance(words, tuple):
                kind, cell, age, time_ns, value = words
                epoch = bench.pages["bad"].cell(cell % 2)[0] + age
                data = Message(kind, cell, epoch % 2**32, 1, time_ns, value).pack()
            else:
                data = words
            bench.send(bad[which], data)
            bench.step(elapsed)

        for connection in bad:
            connection.close()
        bench.loop.turn()
        bench.send(good, Message(MessageType.WANT, value=3).pack())
        gates = [bench.pages["good"].gate_of(cell) for cell in range(2)]
        assert gates == [GateState.OPEN] * 2
        for claim in bench.claims.values():
            claim.end()
        good.close()
    finally:
        shutil.rmtree(folder)


@given(st.binary(max_size=2 * MESSAGE.size))
def test_any_datagram_is_a_message_or_an_error_of_the_protocol(data: bytes) -> None:
    try:
        message = Message.unpack(data)
    except MessageError:
        return
    assert message.pack() == data


@settings(max_examples=50)
@given(st.binary(max_size=400) | st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_any_grant_file_is_a_grant_or_an_error_for_people(content: object) -> None:
    data = content if isinstance(content, bytes) else json.dumps({"gpus": content}).encode()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "a.json"
        file.write_bytes(data)

        with pytest.raises(GrantError, match=r"a\.json"):
            read_grant(file)
