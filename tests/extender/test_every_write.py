"""A sample of faults at the writes of all programs while pods go through the extender."""

import asyncio
from collections.abc import Callable

import pytest

from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import placed, pod, schedule, start
from fakes.cluster.state import gates, the_pod
from kubeshare.simulator.control import Fault

REPLICAS = ("extender", "extender/second")
PODS = {"a": 10, "b": 10, "c": 3}
WRITES = 16
SECONDS = 300.0


def kill(program: str, *, after: bool = False) -> Callable[[FakeCluster], Fault]:
    """A program is killed at the write, and comes back."""

    def fault(cluster: FakeCluster) -> Fault:
        async def again() -> None:
            await cluster.kill(program)
            await cluster.quiet(2)
            cluster.start(program)

        return Fault.reset(after=after, action=lambda: cluster.beside(again()))

    return fault


def always(fault: Fault) -> Callable[[FakeCluster], Fault]:
    return lambda _: fault


FAULTS = {
    "409": always(Fault.answer(409, "Conflict")),
    "409 after it": always(Fault.answer(409, "Conflict", after=True)),
    "500": always(Fault.answer(500, "InternalError")),
    "500 after it": always(Fault.answer(500, "InternalError", after=True)),
    "reset": always(Fault.reset()),
    "reset after it": always(Fault.reset(after=True)),
    "no answer": always(Fault.hang()),
    "no answer after it": always(Fault.hang(after=True)),
    "late": always(Fault.late(4.0)),
    "twice": always(Fault.duplicate()),
    "extender killed": kill("extender"),
    "extender killed after it": kill("extender", after=True),
    "device manager killed": kill("devices"),
    "scheduler killed": kill("scheduler"),
}


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_pods_run_and_leave_nothing(fault: str, half: int) -> None:
    # Each fault at a write of either half of the life, each at another one.
    number = 1 + half * WRITES // 2 + 3 * list(FAULTS).index(fault) % (WRITES // 2)

    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(gpushare={"door": "extender"})
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        cluster.server.inject_at_write(
            cluster.server.writes + number, lambda: FAULTS[fault](cluster)
        )
        for name, units in PODS.items():
            pod(cluster, name, units, gated=True)

        async def place(name: str) -> str:
            await cluster.until(lambda: not gates(cluster, name), SECONDS)
            return await schedule(cluster, name, *REPLICAS, attempts=150)

        assert not any(await asyncio.gather(*map(place, PODS)))
        await cluster.until(lambda: cluster.running(*PODS), SECONDS)
        assert placed(cluster).keys() == PODS.keys()
        for name in PODS:
            cluster.actors.delete(the_pod(cluster, name))
        await expect_holders(cluster, [], [], seconds=SECONDS)

    run()
