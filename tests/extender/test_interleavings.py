"""Replicas that bind one pod at the same moment, with the requests of both in many orders."""

import asyncio
import random

import pytest

from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import bind, placed, pod, schedule, start, vgpus
from fakes.cluster.state import the_pod
from kubeshare.core.units import GI
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.kube.resources import RESOURCE_QUOTAS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound, holders

pytestmark = pytest.mark.slow

REPLICAS = ("extender", "extender/second")
DELAYS = (0.0, 0.0, 0.001, 0.005, 0.02, 0.1)
REQUESTS = (("get", "pods"), ("patch", "pods/status"), ("create", "pods/binding"))
"""What a bind sends about its pod, beside the patches of vGPUs."""


def delay_requests(cluster: FakeCluster, draw: random.Random, name: str) -> None:
    """Let the next requests of binds of a pod take effect after random times."""
    for _ in REPLICAS:
        for verb, resource in REQUESTS:
            fault = Fault.slow(draw.choice(DELAYS))
            cluster.server.inject(fault, verb=verb, resource=resource, name=name)
        for _ in range(2):
            fault = Fault.slow(draw.choice(DELAYS))
            cluster.server.inject(fault, verb="patch", resource="vgpus/status")


async def bind_at_once(cluster: FakeCluster, draw: random.Random, name: str) -> None:
    """Both replicas bind a pod, each to a random node, at about the same moment."""

    async def late(replica: str) -> None:
        await asyncio.sleep(draw.choice(DELAYS))
        await bind(cluster, name, draw.choice(["n1", "n2"]), replica=replica)

    await asyncio.gather(*map(late, REPLICAS))


@pytest.mark.parametrize("seed", range(8))
def test_the_share_of_a_bound_pod_is_never_taken_back(seed: int) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.invariants.doubles = True
        await start(cluster, *REPLICAS)
        draw = random.Random(seed)
        names = [f"p{number}" for number in range(40)]
        uids = {name: pod(cluster, name, 1)["metadata"]["uid"] for name in names}
        for name in names:
            delay_requests(cluster, draw, name)
            await bind_at_once(cluster, draw, name)
            assert await schedule(cluster, name, *REPLICAS) == ""
        await cluster.quiet(BIND_SECONDS + 40)
        assert cluster.invariants.held_twice() == []
        held = placed(cluster)
        for name in names:
            assert the_pod(cluster, name)["metadata"]["uid"] == uids[name], "it was evicted"
            assert held[name][0] == the_pod(cluster, name)["spec"]["nodeName"]
        assert cluster.running(*names)

    run()


@pytest.mark.parametrize("seed", range(4))
def test_no_two_programs_exceed_a_quota_of_the_namespace(seed: int) -> None:
    @scenario(n1=4, n2=4)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(owned={"mixed": True})
        hard = {"requests.kubeshare.nthu/gpu-memory": "10Gi"}
        metadata = {"name": "gpus", "namespace": "default"}
        cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        most = 0

        def look(*_: object) -> None:
            nonlocal most
            held = (each for vgpu in vgpus(cluster) for each in holders(vgpu))
            most = max(most, sum(each["memoryBytes"] for each in held if each.get("podUid")))

        cluster.server.storage.after_change.append(look)
        draw = random.Random(seed)
        names = [f"p{number}" for number in range(24)]
        for name in names:
            pod(cluster, name, draw.randint(1, 4))
        for number in range(8):
            cluster.share(f"s{number}", "0.2", memory="3Gi")
        await asyncio.gather(
            *(schedule(cluster, name, draw.choice(REPLICAS), attempts=8) for name in names)
        )
        await cluster.quiet(BIND_SECONDS)
        assert 7 * GI <= most <= 10 * GI, "what fits is used, and no more"

    run()


def test_200_binds_at_once_through_two_replicas_beside_the_scheduler() -> None:
    @scenario(n1=4, n2=4)
    async def run(cluster: FakeCluster) -> None:
        cluster.invariants.doubles = True
        cluster.configure(owned={"mixed": True})
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        draw = random.Random(1)
        names = [f"p{number}" for number in range(200)]
        uids = {name: pod(cluster, name, 1)["metadata"]["uid"] for name in names}
        for number in range(16):
            cluster.share(f"s{number}", "0.2", memory="3Gi")
        for name in names:
            delay_requests(cluster, draw, name)
        await asyncio.gather(*(bind_at_once(cluster, draw, name) for name in names))
        await asyncio.gather(
            *(schedule(cluster, name, *draw.sample(REPLICAS, 2), attempts=6) for name in names)
        )
        await cluster.quiet(BIND_SECONDS + 40)
        # The invariants of the cluster have checked every state: no GPU has too much.
        assert cluster.invariants.held_twice() == []
        found = {name: the_pod(cluster, name) for name in names}
        assert {name: each["metadata"]["uid"] for name, each in found.items()} == uids
        running = {name for name in names if bound(found[name])}
        assert running == placed(cluster).keys() & {*names}
        for each in found.values():
            cluster.actors.delete(each)
        cluster.clear()
        await expect_holders(cluster, *[[] for _ in range(8)])

    run()
