"""A candidate for a Lease, and what is expected of several."""

import asyncio
from itertools import pairwise
from typing import Any

from kube.expectations import expect_true
from kubeshare.kube.controller.leader_election import LeaderElector, LeadershipLostError
from kubeshare.kube.resources import LEASES
from kubeshare.simulator.control import FakeApiServer


class Candidate:
    """An elector that works until it is ended, and the times at which it led."""

    def __init__(self, server: FakeApiServer, name: str, timeout: float = 15.0) -> None:
        self.elector = LeaderElector(
            server.client(timeout=timeout), "kube", "program", name, draw=lambda: 0.5
        )
        self.end = asyncio.Event()
        self.spans: list[tuple[float, float]] = []
        self.error: BaseException | None = None
        self.running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.elector.run(self._work)
        except LeadershipLostError as error:
            self.error = error

    async def _work(self) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await self.end.wait()
        finally:
            self.spans.append((began, asyncio.get_running_loop().time()))

    @property
    def leading(self) -> bool:
        return self.elector.leading

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])


def lease(server: FakeApiServer) -> dict[str, Any]:
    stored = server.stored(LEASES, "program", "kube")
    assert stored is not None
    spec: dict[str, Any] = stored["spec"]
    return spec


def now() -> float:
    return asyncio.get_running_loop().time()


async def expect_leading(candidate: Candidate, seconds: float = 60) -> None:
    await expect_true(lambda: candidate.leading, "leading", seconds)


async def expect_error(candidate: Candidate, seconds: float = 60) -> None:
    """The candidate has lost its leadership."""
    await expect_true(lambda: candidate.error is not None, "ended", seconds)


def never_two_at_once(*candidates: Candidate) -> None:
    spans = sorted(span for candidate in candidates for span in candidate.spans)
    for (_, end), (begin, _) in pairwise(spans):
        assert end <= begin
