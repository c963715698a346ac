"""A sample of faults at the writes of all programs while pods go through the extender."""

import asyncio

import pytest

from expectations.pods import expect_running, expect_ungated
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import placed, pod, schedule, start
from fakes.cluster.program_faults import FAULTS
from fakes.cluster.state import the_pod

pytestmark = pytest.mark.slow

REPLICAS = ("extender", "extender/second")
PODS = {"a": 10, "b": 10, "c": 3}
WRITES = 16
SECONDS = 300.0


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
            await expect_ungated(cluster, name, seconds=SECONDS)
            return await schedule(cluster, name, *REPLICAS, attempts=150)

        assert not any(await asyncio.gather(*map(place, PODS)))
        await expect_running(cluster, *PODS, seconds=SECONDS)
        assert placed(cluster).keys() == PODS.keys()
        for name in PODS:
            cluster.actors.delete(the_pod(cluster, name))
        await expect_holders(cluster, [], [], seconds=SECONDS)

    run()
