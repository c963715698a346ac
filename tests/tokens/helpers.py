"""A daemon in a thread, and clients of its protocol."""

import asyncio
import contextlib
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens import client, control
from kubeshare.tokens.daemon import Daemon
from kubeshare.tokens.event_loop import EventLoop
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare, Owner, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import Status, wait_status
from kubeshare.tokens.wire.protocol import (
    MESSAGE,
    PAGE_CELL,
    PAGE_EXTENSION,
    PAGE_HEADER,
    VERSION,
    GateState,
    GrantState,
    Message,
    MessageType,
)

GI = 2**30
GPU_A = "GPU-00000000-0000-4000-8000-00000000000a"
GPU_B = "GPU-00000000-0000-4000-8000-00000000000b"


def grant(
    claim: str,
    request: float = 0.3,
    limit: float = 1,
    *,
    memory: int = GI,
    gpus: tuple[str, ...] = (GPU_A,),
    owner: Owner | None = None,
    quota_ns: int | None = None,
    limit_alone: float = 0,
    latency_sensitive: bool = False,
    share: str = "",
) -> Grant:
    """A grant of the same share of each of the GPUs, which have 16 GiB."""
    shares = tuple(
        GrantedShare(
            uuid=uuid,
            memory_total_bytes=16 * GI,
            request_micros=round(request * 1e6),
            limit_micros=round(limit * 1e6),
            memory_bytes=memory,
            limit_alone_micros=round(limit_alone * 1e6),
            latency_sensitive=latency_sensitive,
            share=share,
        )
        for uuid in gpus
    )
    return Grant(version=GRANT_VERSION, claim=claim, gpus=shares, owner=owner, quota_ns=quota_ns)


class RunningDaemon:
    """A daemon in a thread of this process."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        daemon = Daemon(self.paths, self._loop)
        door = await control.serve(self.paths, daemon.handlers())
        self._started.set()
        async with door:
            await self._stop.wait()
        daemon.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def grant(self, asked: Grant) -> Status:
        """Write a grant and wait for the answer."""
        write_grant(self.paths, asked)
        return wait_status(self.paths, asked.claim, DEADLINE_S)

    def view(self, claim: str, gpu: str | None = None) -> dict[str, Any]:
        """What `top` would show of a claim; of its first GPU when none is named."""
        entries = client.ask_snapshot(self.paths)["claims"]
        found: dict[str, Any] = next(
            e for e in entries if e["claim"] == claim and gpu in {None, e["gpu"]}
        )
        return found


class Page:
    """A page as the library sees it."""

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDONLY)
        self.inode = os.fstat(file).st_ino
        self._map = mmap.mmap(file, os.fstat(file).st_size, prot=mmap.PROT_READ)
        os.close(file)

    @property
    def grant_state(self) -> GrantState:
        return GrantState(PAGE_HEADER.unpack_from(self._map, 0)[4])

    @property
    def header(self) -> tuple[int, ...]:
        return PAGE_HEADER.unpack_from(self._map, 0)

    def cell(self, index: int = 0) -> tuple[int, ...]:
        return PAGE_CELL.unpack_from(self._map, PAGE_HEADER.size + index * PAGE_CELL.size)

    def used(self, index: int = 0) -> tuple[int, int]:
        """Up to when the use is accounted for, in ns, and the share in micros."""
        at = self.header[5] + index * PAGE_EXTENSION.size
        at_ns, used_micros, *_ = PAGE_EXTENSION.unpack_from(self._map, at)
        return at_ns, used_micros

    @property
    def epoch(self) -> int:
        return self.cell()[0]

    @property
    def gate(self) -> GateState:
        return self.gate_of(0)

    def gate_of(self, cell: int) -> GateState:
        return GateState(self.cell(cell)[1])


class Client:
    """One process of a claim, controlled by the test."""

    def __init__(self, paths: Paths, claim: str, *, hello: bool = True) -> None:
        self.page = Page(paths.claim(claim) / "page")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE_S)
        folder = os.open(paths.claim(claim), os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{folder}/socket")
        finally:
            os.close(folder)
        if hello:
            self.send(MessageType.HELLO, value=VERSION)
            assert self.receive().type is MessageType.WELCOME

    def send(
        self,
        kind: MessageType,
        *,
        cell: int = 0,
        epoch: int = 0,
        time_ns: int = 0,
        value: int = 0,
    ) -> None:
        self.socket.send(Message(kind, cell, epoch, os.getpid(), time_ns, value).pack())

    def receive(self) -> Message:
        return Message.unpack(self.socket.recv(MESSAGE.size))

    def receive_until(self, kind: MessageType) -> Message:
        while True:
            message = self.receive()
            if message.type is kind:
                return message

    @property
    def is_dropped(self) -> bool:
        """Whether the daemon has closed the connection (earlier messages are skipped)."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(MESSAGE.size):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(DEADLINE_S)
        return True

    def want(self, cell: int = 0, *, mask: int = 0) -> None:
        self.send(MessageType.WANT, cell=cell, epoch=self.page.cell(cell)[0], value=mask)

    def open(self) -> None:
        """Want, and wait until the gate is open."""
        self.want()
        eventually(lambda: self.page.gate is GateState.OPEN, "the gate is open")

    def drain(self, time_ns: int | None = None) -> None:
        """Answer the next CLOSING."""
        asked = self.receive_until(MessageType.CLOSING)
        now = time.monotonic_ns() if time_ns is None else time_ns
        self.send(MessageType.DRAINED, cell=asked.cell, epoch=asked.epoch, time_ns=now)

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def saturating(client: Client) -> Iterator[None]:
    """Let a client behave like a process that always has work, until the block ends."""
    done = threading.Event()

    def work() -> None:
        client.socket.settimeout(0.05)
        while not done.is_set():
            if client.page.gate is not GateState.OPEN:
                client.want()
            with contextlib.suppress(TimeoutError):
                if client.receive().type is MessageType.CLOSING:
                    client.send(
                        MessageType.DRAINED, epoch=client.page.epoch, time_ns=time.monotonic_ns()
                    )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(DEADLINE_S)


@contextlib.contextmanager
def prepared(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has run a program, and holds what it opened until it is killed."""
    lasting = program + "print('ready', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", lasting], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


@contextlib.contextmanager
def lease_of(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lease of a file and does not give it up when it is asked to."""
    with prepared(
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        f"file = os.open({str(file)!r}, os.O_RDONLY)\n"
        "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
    ) as process:
        yield process
