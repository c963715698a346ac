"""Pods of a gang are served each by itself, within its own limit. In virtual time."""

import json
from typing import Final

import msgspec
import pytest

from kubeshare.tokens.files.run_folder import write_whole
from kubeshare.tokens.wire.protocol import GateState, MessageType
from tokens.helpers import GPU_A, GPU_B, grant
from tokens.virtual_time import VirtualClient, VirtualDaemon

MS = 1_000_000
SECOND = 1_000_000_000
_STEP_NS: Final = 5 * MS
_BUSY_NS: Final = 50 * MS
_RUN_NS: Final = 20 * SECOND


class Worker:
    """Runs kernels of one length, one after the other, and answers as the device library does.

    Attributes:
        used_ns: how long they ran.
    """

    def __init__(self, client: VirtualClient, kernel_ns: int) -> None:
        self.client = client
        self.used_ns = 0
        self._kernel_ns = kernel_ns
        self._ends_ns: int | None = None
        self._wanted: int | None = None
        self._closing: int | None = None
        self._busy_ns = 0

    def step(self, now: int) -> None:
        """Go on to this time, one step after the last."""
        page = self.client.page
        for message in self.client.pending():
            if message.type is MessageType.CLOSING:
                self._closing, self._busy_ns = message.epoch, now
        if self._ends_ns is not None:
            self.used_ns += _STEP_NS
            if now >= self._ends_ns:
                self._ends_ns = None
        if page.gate is GateState.OPEN:
            self._closing = None
            if self._ends_ns is None:
                self._ends_ns = now + self._kernel_ns
            return
        if self._closing is not None:
            self._answer(self._closing, now)
        if self._wanted != page.epoch:  # the next kernel is launched while this one runs
            self._wanted = page.epoch
            self.client.want()

    def _answer(self, epoch: int, now: int) -> None:
        if self._ends_ns is None:
            self.client.send(MessageType.DRAINED, epoch=epoch, time_ns=now)
            self._closing = None
        elif now - self._busy_ns >= _BUSY_NS:
            self._busy_ns = now
            self.client.send(MessageType.BUSY, epoch=epoch)


def member_of_gang(virtual: VirtualDaemon, name: str, gpu: str) -> VirtualClient:
    """A process of a pod with a tenth of a GPU, whose grant names a gang of two."""
    document = json.loads(msgspec.json.encode(grant(name, 0.1, 0.1, gpus=(gpu,))))
    document["pod"] = {
        "namespace": "ns",
        "name": name,
        "uid": f"{name}-uid",
        "gang": "g",
        "gangMembers": 2,
    }
    virtual.paths.make()
    write_whole(virtual.paths.grant(name), json.dumps(document).encode())
    virtual.turn()
    return virtual.client(name)


@pytest.mark.parametrize("kernel_ms", [1000, 4000])
def test_a_pod_of_a_gang_is_charged_for_its_long_kernels_and_held_to_its_limit(
    virtual: VirtualDaemon, kernel_ms: int
) -> None:
    """Granted together with its peer, it used .35 and .92 of the GPU for a charge of .1."""
    for name, gpu, request in (("neighbour", GPU_A, 0.5), ("idle", GPU_B, 0.1)):
        virtual.grant(grant(name, request, gpus=(gpu,)))
    long = Worker(member_of_gang(virtual, "a", GPU_A), kernel_ms * MS)
    peer = Worker(member_of_gang(virtual, "b", GPU_B), _STEP_NS)
    neighbour = Worker(virtual.client("neighbour"), _STEP_NS)
    began = virtual.now

    while virtual.now < began + _RUN_NS:
        for worker in (long, peer, neighbour):
            worker.step(virtual.now)
        virtual.elapse(_STEP_NS)

    used = long.used_ns / _RUN_NS
    assert virtual.view("a")["chargedNs"] / _RUN_NS == pytest.approx(used, abs=0.03)
    assert 0 < used <= 0.1 + kernel_ms * MS / _RUN_NS, "its limit, and one kernel that runs on"
    assert virtual.view("a")["bypasses"] == 0
    assert neighbour.used_ns / _RUN_NS >= 0.5 - 0.03
    assert peer.used_ns / _RUN_NS == pytest.approx(0.1, abs=0.03)
