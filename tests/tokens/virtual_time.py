"""A daemon and clients that always have work, in one thread and on a clock set by hand."""

import asyncio
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from kubeshare.tokens import daemon
from kubeshare.tokens.files.grants import Grant, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import VERSION, GateState, MessageType
from tokens.conversation import Loop
from tokens.helpers import Client


class _Timer:
    """Stands for the daemon's timer; it fires when the clock is set."""

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
    """The token daemon over real sockets and files; nothing happens between two calls.

    Attributes:
        now: its clock, in ns.
    """

    def __init__(self, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000_000
        self._paths = paths
        self._loop = Loop()
        self._timer = _Timer()
        monkeypatch.setattr(daemon, "time", SimpleNamespace(monotonic_ns=lambda: self.now))
        monkeypatch.setattr(daemon, "Timer", lambda: self._timer)
        self._daemon = daemon.Daemon(paths, cast("asyncio.AbstractEventLoop", self._loop))

    def client(self, asked: Grant) -> Client:
        """Grant this, and connect one process of its claim."""
        write_grant(self._paths, asked)
        self._loop.turn()
        client = Client(self._paths, asked.claim, hello=False)
        client.send(MessageType.HELLO, value=VERSION)
        self._loop.turn()
        assert client.receive().type is MessageType.WELCOME
        return client

    def saturate(self, clients: Collection[Client], for_ns: int, drain_ns: int) -> None:
        """Let the clients have work all the time; each drain takes `drain_ns`."""
        end = self.now + for_ns
        for client in clients:
            client.want()
        self._loop.turn()
        while self._timer.at_ns is not None and self._timer.at_ns <= end:
            self.now = max(self.now, self._timer.at_ns)
            self._timer.fire()
            self._loop.turn()
            for client in clients:
                if client.page.gate is GateState.CLOSING:
                    self.now += drain_ns
                    client.drain(self.now)
                    client.want()
                    self._loop.turn()
        self.now = max(self.now, end)

    def charged_ns(self) -> dict[str, int]:
        """What each claim of one GPU has been charged so far."""
        return {entry["claim"]: entry["chargedNs"] for entry in self._daemon.entries()}

    def close(self) -> None:
        self._daemon.close()


@contextmanager
def virtual_daemon(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualDaemon]:
    running = VirtualDaemon(paths, monkeypatch)
    try:
        yield running
    finally:
        running.close()
