"""Injects a trouble at one write, and records what became of that write."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

from fakes.cluster import FakeCluster
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control.requests import Answer, Request
from kubeshare.simulator.control.storage import Watcher

RESET = "reset"


@dataclass
class Strike:
    """What became of the write that a trouble struck.

    Attributes:
        request: the write; None while none was struck.
        index: its place in the server's ``requests``.
        performed: the virtual times at which the server carried it out or refused it.
        answer: what its sender saw: a status code, ``reset``, or ``""`` for nothing.
        late: whether it is delayed on its way.
        running: the clients of the programs that ran when it struck.
        watchers: the watches that were open when it struck.
    """

    request: Request | None = None
    index: int = 0
    performed: list[float] = field(default_factory=list)
    answer: str = ""
    late: bool = False
    running: set[str] = field(default_factory=set)
    watchers: list[Watcher] = field(default_factory=list)

    @property
    def at(self) -> float:
        """The virtual time of the strike."""
        assert self.request is not None
        return self.request.at

    @property
    def client(self) -> str:
        """The sender: ``scheduler-1``, where 1 is the number of its start."""
        assert self.request is not None
        return self.request.client

    def has_arrived(self) -> bool:
        """Whether the write is not on its way any more."""
        return not self.late or bool(self.performed)


def inject(cluster: FakeCluster, write: int, trouble: Callable[[FakeCluster], Fault]) -> Strike:
    """Let the n-th write of a cluster (from 1) meet a trouble."""
    server, strike = cluster.server, Strike()
    perform, meet = server._answer, server._answer_with_fault

    def performed(request: Request) -> Answer:
        if request is strike.request:
            strike.performed.append(asyncio.get_running_loop().time())
        return perform(request)

    async def met(request: Request, fault: Fault) -> Answer:
        if request is not strike.request:
            return await meet(request, fault)
        try:
            answer = await meet(request, fault)
        except httpx2.ReadError:
            strike.answer = RESET
            raise
        strike.answer = str(answer.status)
        return answer

    def struck() -> Fault:
        strike.index = len(server.requests) - 1
        strike.request = server.requests[strike.index]
        strike.running = cluster.clients
        strike.watchers = list(server.storage.watchers)
        fault = trouble(cluster)
        strike.late = fault.kind == "late"
        return fault

    server._answer = performed  # type: ignore[method-assign]
    server._answer_with_fault = met  # type: ignore[method-assign]
    server.inject_at_write(write, struck)
    return strike
