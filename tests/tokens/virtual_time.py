"""The token daemon and its clients in one thread, on a clock that only the test moves."""

import asyncio
import os
import select
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from kubeshare.tokens import daemon
from kubeshare.tokens.files.grants import Grant, remove_grant, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import Status, read_status
from kubeshare.tokens.wire.protocol import GateState, Message, MessageType
from tokens.conversation import Loop
from tokens.helpers import Client

Found = TypeVar("Found")

_DEADLINES_MAX = 1000


class _Timer:
    """Stands for the daemon's timer; the test lets it fire."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.at_ns: int | None = None
        self._has_fired = False

    def set(self, at_ns: int | None) -> None:
        self.at_ns = at_ns
        if self._has_fired:
            os.eventfd_read(self.fd)
            self._has_fired = False

    def fire(self) -> None:
        os.eventfd_write(self.fd, 1)
        self._has_fired = True

    def close(self) -> None:
        os.close(self.fd)


class VirtualDaemon:
    """A daemon with real files and sockets, which has done all it has to after each call.

    Attributes:
        now: its clock, in ns. It stands still but for `advance` and those that call it.
    """

    def __init__(self, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000_000
        self.paths = paths
        self._loop = Loop()
        self._timer = _Timer()
        monkeypatch.setattr(daemon, "time", SimpleNamespace(monotonic_ns=lambda: self.now))
        monkeypatch.setattr(daemon, "Timer", lambda: self._timer)
        self._daemon = daemon.Daemon(paths, cast("asyncio.AbstractEventLoop", self._loop))

    def turn(self) -> None:
        """Let it handle all that has happened."""
        self._loop.turn()

    def advance(self) -> None:
        """Go on to the time of its timer, which fires."""
        assert self._timer.at_ns is not None, "it waits for no time to come"
        self.now = max(self.now, self._timer.at_ns)
        self._timer.fire()
        self.turn()

    def elapse(self, ns: int) -> None:
        """Let time pass; its timer fires when it is due."""
        end = self.now + ns
        while self._timer.at_ns is not None and self._timer.at_ns <= end:
            self.advance()
        self.now = end

    def until(self, question: Callable[[], Found | bool | None], what: str) -> Found:
        """Advance until the answer is true."""
        for _ in range(_DEADLINES_MAX):
            answer = question()
            if answer:
                return answer  # type: ignore[return-value]
            self.advance()
        raise AssertionError(f"not within {_DEADLINES_MAX} deadlines: {what}")

    def grant(self, asked: Grant) -> Status:
        """Write a grant; the answer."""
        write_grant(self.paths, asked)
        self.turn()
        status = read_status(self.paths, asked.claim)
        assert status is not None
        return status

    def revoke(self, claim: str) -> None:
        """Remove a grant."""
        remove_grant(self.paths, claim)
        self.turn()

    def client(self, claim: str) -> "VirtualClient":
        """Connect one more process of a claim."""
        return VirtualClient(self, claim)

    def view(self, claim: str) -> dict[str, Any]:
        """What `top` would show of a claim and its first GPU."""
        return next(entry for entry in self._daemon.entries() if entry["claim"] == claim)

    def hung(self) -> dict[str, Any]:
        """The answer to the request `hung`: claim → GPU → pids."""
        return {entry["claim"]: entry["gpus"] for entry in self._daemon.hung()["claims"]}

    def saturate(self, clients: Collection["VirtualClient"], for_ns: int, drain_ns: int) -> None:
        """Let clients of one GPU each have work all the time; each drain takes `drain_ns`."""
        end = self.now + for_ns
        for client in clients:
            client.want()
        while self._timer.at_ns is not None and self._timer.at_ns <= end:
            self.advance()
            for client in clients:
                if client.page.gate is GateState.CLOSING:
                    self.now += drain_ns
                    client.drain()
                    client.want()

    def close(self) -> None:
        """Release what it holds."""
        self._daemon.close()


class VirtualClient(Client):
    """One process of a claim: what it sends is handled at once, what it waits for takes no time."""

    def __init__(self, daemon: VirtualDaemon, claim: str) -> None:
        self._daemon = daemon
        super().__init__(daemon.paths, claim)

    def send(
        self,
        kind: MessageType,
        *,
        cell: int = 0,
        epoch: int = 0,
        time_ns: int = 0,
        value: int = 0,
    ) -> None:
        super().send(kind, cell=cell, epoch=epoch, time_ns=time_ns, value=value)
        self._daemon.turn()

    def receive(self) -> Message:
        self._daemon.until(lambda: select.select([self.socket], [], [], 0)[0], "a message")
        return super().receive()

    def pending(self) -> Iterator[Message]:
        """The messages that have arrived."""
        while select.select([self.socket], [], [], 0)[0]:
            yield super().receive()

    def open(self) -> None:
        self.want()
        self._daemon.until(lambda: self.page.gate is GateState.OPEN, "the gate is open")

    def drain(self, time_ns: int | None = None) -> None:
        """Answer the next CLOSING, with the clock's present time where none is given."""
        asked = self.receive_until(MessageType.CLOSING)
        at = self._daemon.now if time_ns is None else time_ns
        self.send(MessageType.DRAINED, cell=asked.cell, epoch=asked.epoch, time_ns=at)

    def close(self) -> None:
        super().close()
        self._daemon.turn()
