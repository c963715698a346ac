"""A process that never says that its work has ended, beside honest ones; in virtual time."""

import pytest

from kubeshare.tokens.wire.protocol import BUSY_INTERVAL_NS, GateState, MessageType
from tokens.helpers import grant
from tokens.virtual_time import VirtualClient, VirtualDaemon

HONEST = {"a": 0.5, "b": 0.3}
LEAST = {"a": 0.47, "b": 0.27}
LIAR = "liar"
REQUEST = 0.2

SECOND_NS = 1_000_000_000
SPAN_NS = 70 * SECOND_NS
DRAIN_NS = 200_000
BELIEVED_NS = 10 * SECOND_NS
"""An honest kernel may take longer than that."""


class BusyForEver:
    """Wants and launches nothing; once it is asked to drain it says BUSY, again and again.

    Attributes:
        held_ns: for how long its gate has not been closed, to one interval of BUSY.
        began_ns: when that was first so; None before.
    """

    def __init__(self, daemon: VirtualDaemon) -> None:
        self.held_ns = 0
        self.began_ns: int | None = None
        self._daemon = daemon
        self._client: VirtualClient = daemon.client(LIAR)
        self._epoch: int | None = None

    def act(self) -> None:
        """Do what is due after each interval of BUSY."""
        for message in self._client.pending():
            if message.type is MessageType.CLOSING:
                self._epoch = message.epoch
        if self._epoch is not None:
            self._client.send(MessageType.BUSY, epoch=self._epoch)
        if self._client.page.gate is GateState.CLOSED:
            self._client.want()
            return
        self.held_ns += BUSY_INTERVAL_NS
        if self.began_ns is None:
            self.began_ns = self._daemon.now


def test_who_is_busy_for_ever_pays_for_it_and_others_keep_their_requests(
    virtual: VirtualDaemon,
) -> None:
    for name, request in {**HONEST, LIAR: REQUEST}.items():
        virtual.grant(grant(name, request))
    honest = [virtual.client(name) for name in HONEST]
    liar = BusyForEver(virtual)
    began_ns = virtual.now

    while virtual.now - began_ns < SPAN_NS:
        end_ns = virtual.now + BUSY_INTERVAL_NS
        virtual.saturate(honest, BUSY_INTERVAL_NS, DRAIN_NS)
        virtual.now = max(virtual.now, end_ns)
        liar.act()

    took_ns = virtual.now - began_ns
    shares = {name: virtual.view(name)["chargedNs"] / took_ns for name in HONEST}
    assert all(shares[name] >= LEAST[name] for name in HONEST), shares
    assert liar.held_ns > BELIEVED_NS
    assert liar.began_ns is not None
    charged_ns = virtual.view(LIAR)["chargedNs"]
    assert charged_ns == pytest.approx(virtual.now - liar.began_ns, abs=2 * BUSY_INTERVAL_NS)
    assert virtual.hung().keys() == {LIAR}
