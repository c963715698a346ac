"""Replicas that decide in their filters write at one time, are killed, and never give too much."""

import asyncio
import random

import pytest

from expectations.pods import expect_running, expect_ungated
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.predicates import bind, expect_placed, fit, placed, pod, schedule, start
from fakes.cluster.program_faults import FAULTS
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound

pytestmark = pytest.mark.slow

REPLICAS = ("extender", "extender/second")
SECONDS = 300.0


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
            pod(cluster, name, draw.choice([10, 30, 50, 100]))
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
        started = {name for name in names if bound(the_pod(cluster, name))}
        assert started
        assert started <= placed(cluster).keys()
        assert cluster.running(*started)
        for name in names:
            cluster.actors.delete(the_pod(cluster, name))
        cluster.clear()
        await expect_placed(cluster, {})

    run()


@pytest.mark.parametrize("order", range(6))
def test_two_replicas_that_place_one_pod_at_one_time_leave_one_share(order: int) -> None:
    """kube-scheduler gives a call up after its timeout and makes it again."""

    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster, *REPLICAS)
        pod(cluster, "a", 60)
        draw = random.Random(order)
        nodes = draw.sample([("n1",), ("n2",), ("n1", "n2")], 2)
        delays = draw.sample([0.0, 0.001, 0.005, 0.02], 2)

        async def late(replica: str, offered: tuple[str, ...], delay: float) -> list[str]:
            await asyncio.sleep(delay)
            found: list[str] = (await fit(cluster, "a", *offered, replica=replica))["NodeNames"]
            return found

        answers = await asyncio.gather(*map(late, REPLICAS, nodes, delays))
        node = draw.choice([each for each in answers if each])[0]
        bind(cluster, "a", node)
        await expect_running(cluster, "a")
        await expect_placed(cluster, {"a": [(node, 0)]})

    run()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_of_two_shares_by_a_replica_whose_watch_is_late_one_stays(node: str) -> None:
    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        cluster.invariants.doubles = True
        await start(cluster, *REPLICAS)
        pod(cluster, "a", 60)
        cluster.server.freeze_watches()
        for replica, offered in zip(REPLICAS, ("n1", "n2"), strict=True):
            assert (await fit(cluster, "a", offered, replica=replica))["NodeNames"] == [offered]
        assert placed(cluster) == {"a": [("n1", 0), ("n2", 0)]}
        cluster.server.freeze_watches(frozen=False)
        cluster.server.reset_watches()
        bind(cluster, "a", node)
        await expect_running(cluster, "a", seconds=100)
        await expect_placed(cluster, {"a": [(node, 0)]})

    run()


@scenario(n1=2)
async def test_of_two_shares_on_one_node_one_stays(cluster: FakeCluster) -> None:
    """As after two replicas of which one believed another GPU to be the fullest."""
    cluster.invariants.doubles = True
    await start(cluster)
    pod(cluster, "a", 30)
    await fit(cluster, "a")
    [vgpu] = [name for name, held in cluster.vgpus().items() if not held]
    [holder] = [
        each
        for name in cluster.vgpus()
        for each in cluster.vgpu(name)["status"].get("holders", ())
        if each["name"] == "a"
    ]
    cluster.server.change(
        VGPUS, vgpu, "", lambda obj: obj["status"].update(holders=[holder], phase="Active")
    )
    assert len(placed(cluster)["a"]) == 2
    bind(cluster, "a", "n1")
    await expect_running(cluster, "a")
    assert len(placed(cluster)["a"]) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("shares", [1, 2])
def test_another_replica_goes_on_where_one_was_killed(shares: int, *, after: bool) -> None:
    @scenario(n1=3)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster, *REPLICAS)

        def kill() -> None:
            cluster.beside(cluster.kill(REPLICAS[0]))

        fault = Fault.reset(after=after, action=kill)
        write = cluster.server.writes + shares
        cluster.server.inject_at_write(write, fault)
        pod(cluster, "a", 100, 50)
        first = asyncio.create_task(fit(cluster, "a", replica=REPLICAS[0]))
        await cluster.until(lambda: REPLICAS[0] not in cluster.programs)
        first.cancel()
        assert await schedule(cluster, "a", REPLICAS[1]) == ""
        await expect_running(cluster, "a", seconds=BIND_SECONDS)
        assert len(placed(cluster)["a"]) == 2

    run()


WRITES = 15
"""Of the three pods: the gate, the holder, the names, the uid, ``gpu-assigned``."""


@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("fault", FAULTS)
def test_pods_run_and_leave_nothing_whichever_write_fails(fault: str, third: int) -> None:
    # Each fault at a write of each third of the life, each at another one.
    number = 1 + third * WRITES // 3 + 2 * list(FAULTS).index(fault) % (WRITES // 3)

    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(vcuda={"door": "extender"})
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        cluster.server.inject_at_write(
            cluster.server.writes + number, lambda: FAULTS[fault](cluster)
        )
        names = {"a": 60, "b": 60, "c": 30}
        for name, cores in names.items():
            pod(cluster, name, cores, gated=True)

        async def place(name: str) -> str:
            await expect_ungated(cluster, name, seconds=SECONDS)
            return await schedule(cluster, name, *REPLICAS, attempts=150)

        assert not any(await asyncio.gather(*map(place, names)))
        await expect_running(cluster, *names, seconds=SECONDS)
        assert placed(cluster).keys() == names.keys()
        for name in names:
            cluster.actors.delete(the_pod(cluster, name))
        await expect_placed(cluster, {}, seconds=SECONDS)

    run()
