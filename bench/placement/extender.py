"""What a filter of the scheduler extender takes, from kube-scheduler's request to the answer.

Requests go over one connection of the loopback, as kube-scheduler keeps one. Before each request
a holder has come to a GPU or left one, and the watch has delivered it. The answer has the form of
the request: names of nodes, or whole Node objects of 1.4 KB each. Times are processor time of the
client and the extender together: a busy neighbour does not count.
"""

import asyncio
import gc
import json
import random
import time
from contextlib import suppress

from bench.extender.objects import (
    GPUS,
    PADDING,
    UNITS,
    Raw,
    filter_arguments,
    holder,
    seed_owned_node,
)
from bench.report import NO_GOAL, Goal, Met, percentile, report, time_at_most

from kubeshare.api.types.v1 import VGPUS
from kubeshare.extender.program import Serving, extender_program
from kubeshare.extender.service import PREFIX
from kubeshare.simulator.control import FakeApiServer, until

GOALS_MS = {1_000: 5.0, 5_000: 20.0}
"""Nodes of 8 GPUs → the 99th percentile of a filter by names, in ms."""

_REQUESTS = 300
_WARM_UP = 20


def run() -> list[Met]:
    """Both sizes, and both forms of the request."""
    return [met for nodes in GOALS_MS for met in asyncio.run(_measure(nodes))]


async def _measure(nodes: int) -> list[Met]:
    cluster = _Cluster(nodes)
    client = cluster.server.client("extender")
    program, _, server = extender_program(client, instance="bench", serving=Serving(0))
    assert server is not None
    running = asyncio.create_task(program.run())
    await until(lambda: not list(program.not_ready()), seconds=300.0)
    await server.listening.wait()
    gc.collect()
    gc.freeze()
    try:
        return [
            await _filters(cluster, server.port, whole=False),
            await _filters(cluster, server.port, whole=True),
        ]
    finally:
        gc.unfreeze()
        program.stop()
        with suppress(asyncio.CancelledError):
            await running


async def _filters(cluster: "_Cluster", port: int, *, whole: bool) -> Met:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    request = cluster.request(whole=whole)
    taken_ms = []
    for number in range(_WARM_UP + _REQUESTS):
        cluster.change()
        await asyncio.sleep(0.002)  # the watch delivers it
        began = time.process_time()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if number >= _WARM_UP:
            taken_ms.append((time.process_time() - began) * 1e3)
    writer.close()
    goal: Goal = NO_GOAL if whole else time_at_most(GOALS_MS[cluster.nodes])
    form = "whole nodes" if whole else "names"
    what = f"extender: filter of {cluster.nodes} nodes x {GPUS} GPUs by {form}, p99, ms"
    return report(what, goal, percentile(taken_ms, 99), median=percentile(taken_ms, 50))


class _Cluster:
    """Owned nodes of gpushare, their GPUs half full on average."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.server = FakeApiServer()
        self._source = random.Random(5)
        self._names = [f"node-{number:04}" for number in range(nodes)]
        self._vgpus = [
            vgpu
            for name in self._names
            for vgpu in seed_owned_node(self.server, name, self._holders)
        ]

    def _holders(self, vgpu: str) -> list[Raw]:
        return [holder(f"{vgpu}-{each}", 1) for each in range(self._source.randint(0, UNITS))]

    def change(self) -> None:
        """Let a holder come to a GPU, or leave it."""

        def change(obj: Raw) -> None:
            holders = obj["status"]["holders"]
            if len(holders) < UNITS:
                holders.append(holder(f"new-{self._source.random()}", 1))
            else:
                holders.pop()

        self.server.change(VGPUS, self._source.choice(self._vgpus), "", change)

    def request(self, *, whole: bool) -> bytes:
        """A request for a pod of 4 units on all nodes."""
        arguments = filter_arguments(4)
        if whole:
            items = [{"metadata": {"name": name, "annotations": PADDING}} for name in self._names]
            arguments["Nodes"] = {"items": items}
        else:
            arguments["NodeNames"] = self._names
        body = json.dumps(arguments).encode()
        head = f"POST {PREFIX}/filter HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body
