"""Replicas of the extender and KubeShare-Sched write at one time, and never too much."""

import asyncio
import random

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import bind, placed, pod, schedule, start
from fakes.cluster.state import the_pod
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound

pytestmark = pytest.mark.slow

REPLICAS = ("extender", "extender/second")


@pytest.mark.parametrize("seed", range(3))
def test_many_pods_through_two_replicas_beside_the_scheduler(seed: int) -> None:
    @scenario(n1=4, n2=4)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(owned={"mixed": True})
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        draw = random.Random(seed)
        names = [f"p{number}" for number in range(40)]
        for name in names:
            pod(cluster, name, draw.randint(1, 8))
        for number in range(16):
            cluster.share(f"s{number}", "0.2", memory="3Gi")
        orders = [draw.sample(REPLICAS, 2) for _ in names]
        await asyncio.gather(
            *(
                schedule(cluster, name, *order, attempts=8)
                for name, order in zip(names, orders, strict=True)
            )
        )
        await cluster.quiet(5)
        # The invariants of the cluster have checked every state: no GPU has too much.
        held = placed(cluster)
        assert {name for name in names if bound(the_pod(cluster, name))} == held.keys() & {*names}
        for name in names:
            cluster.actors.delete(the_pod(cluster, name))
        cluster.clear()
        await expect_holders(cluster, *[[] for _ in range(8)])

    run()


@scenario(n1=1, n2=1)
async def test_a_pod_that_two_replicas_bind_at_one_time_has_one_share(
    cluster: FakeCluster,
) -> None:
    cluster.invariants.doubles = True
    await start(cluster, *REPLICAS)
    for number in range(10):
        pod(cluster, f"p{number}", 1)
        nodes = ("n1", "n2") if number % 2 else ("n1", "n1")
        delays = random.Random(number).sample([0.0, 0.001, 0.005, 0.02, 0.1], 2)

        async def late(replica: str, node: str, delay: float, name: str = f"p{number}") -> None:
            await asyncio.sleep(delay)
            await bind(cluster, name, node, replica=replica)

        await asyncio.gather(*map(late, REPLICAS, nodes, delays))
        await schedule(cluster, f"p{number}", *REPLICAS)
    await cluster.quiet(BIND_SECONDS)
    assert cluster.invariants.held_twice() == []
    for number in range(10):
        node = the_pod(cluster, f"p{number}")["spec"]["nodeName"]
        assert placed(cluster)[f"p{number}"] == (node, 0)
    assert cluster.running(*(f"p{number}" for number in range(10)))


@pytest.mark.parametrize("write", range(1, 13))
def test_a_replica_that_is_killed_at_a_write_leaves_nothing(write: int) -> None:
    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster, *REPLICAS)

        def kill() -> None:
            cluster.beside(again())

        async def again() -> None:
            await cluster.kill("extender")
            await cluster.quiet(3)
            cluster.start("extender")

        fault = Fault.reset(after=bool(write % 2), action=kill)
        cluster.server.inject_at_write(cluster.server.writes + write, fault)
        names = [f"p{number}" for number in range(6)]
        for name in names:
            pod(cluster, name, 5)
        await asyncio.gather(*(schedule(cluster, name, *REPLICAS) for name in names))
        await expect_running(cluster, *names, seconds=BIND_SECONDS + 60)
        held = placed(cluster)
        assert len(held) == 6
        assert sorted(held.values()) == [("n1", 0)] * 3 + [("n2", 0)] * 3

    run()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_replica_whose_watch_is_late_takes_no_share_of_a_bound_pod(node: str) -> None:
    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster, *REPLICAS)
        pod(cluster, "a", 4)
        cluster.server.inject(Fault.slow(2.0), verb="create", resource="pods/binding")
        first = asyncio.create_task(bind(cluster, "a", "n1"))
        await expect_holders(cluster, ["a"], [])
        await cluster.quiet(1.0)
        cluster.server.freeze_watches()
        assert await first == (200, "")
        status, error = await bind(cluster, "a", node, replica=REPLICAS[1])
        assert (status, "n1" in error) == ((200, False) if node == "n1" else (500, True))
        await expect_holders(cluster, ["a"], [])
        cluster.server.freeze_watches(frozen=False)
        await expect_running(cluster, "a", seconds=100)
        assert placed(cluster) == {"a": ("n1", 0)}

    run()
