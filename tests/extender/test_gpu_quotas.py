"""GPUQuotas hold while replicas of the extender and Sched place at one time."""

import asyncio
import random

import pytest

from expectations.vgpus import expect_holders
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import bind, fit, pod, schedule, start, vgpus
from fakes.cluster.quotas import (
    expect_used,
    label_gpus,
    limit,
    running_micros,
    watch_overshoot,
)
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.quota.charge import WHOLE_GPU
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound

REPLICAS = ("extender", "extender/second")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_pods_through_two_replicas_beside_the_scheduler_stay_within(seed: int) -> None:
    @scenario(n1=4, n2=4)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(owned={"mixed": True})
        limit(cluster, {"model": "V100", "gpus": 2})
        overshoots = watch_overshoot(cluster, 2_000_000)
        await start(cluster, *REPLICAS)
        cluster.start("scheduler")
        await cluster.quiet(1)
        draw = random.Random(seed)
        names = [f"p{number}" for number in range(24)]
        for name in names:
            pod(cluster, name, draw.randint(1, 6))
        for number in range(8):
            cluster.share(f"s{number}", "0.2", memory="3Gi")
        orders = [draw.sample(REPLICAS, 2) for _ in names]
        await asyncio.gather(
            *(
                schedule(cluster, name, *order, attempts=8)
                for name, order in zip(names, orders, strict=True)
            )
        )
        await cluster.quiet(5)
        assert overshoots == []
        # It is used as far as the smallest of those that wait lets it.
        assert running_micros(cluster) > 1_700_000
        for name in names:
            cluster.actors.delete(the_pod(cluster, name))
        cluster.clear()
        await expect_holders(cluster, *[[] for _ in range(8)])
        await expect_used(cluster, ("V100 0", "V100 2"))

    run()


@scenario(n1=2, n2=2)
async def test_two_replicas_that_have_seen_nothing_of_each_other_do_not_overshoot(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"gpus": "500m"})
    overshoots = watch_overshoot(cluster, 500_000)
    await start(cluster, *REPLICAS)
    pod(cluster, "a", 6)
    pod(cluster, "b", 6)
    cluster.server.freeze_watches()
    first, second = await asyncio.gather(
        bind(cluster, "a", "n1"), bind(cluster, "b", "n2", replica=REPLICAS[1])
    )
    # Each may have seen the other in its second look, and both given way.
    assert sorted(status for status, _ in (first, second)) in ([200, 500], [500, 500])
    cluster.server.freeze_watches(frozen=False)
    await cluster.quiet(1)
    await asyncio.gather(*(schedule(cluster, name, *REPLICAS, attempts=3) for name in "ab"))
    assert sum(bound(the_pod(cluster, name)) for name in "ab") == 1
    assert overshoots == []


@scenario(n1=1, n2=1)
async def test_the_filter_names_the_quota_and_each_node_that_it_excludes(
    cluster: FakeCluster,
) -> None:
    label_gpus(cluster, "n1", pool="web")
    label_gpus(cluster, "n2", pool="research")
    limit(cluster, {"model": "V100", "pools": ["research"], "gpus": "500m"})
    await start(cluster)
    pod(cluster, "a", 6)
    answer = await fit(cluster, "a")
    assert answer["NodeNames"] == ["n2"]
    why = answer["FailedNodes"]["n1"]
    assert why == "no quota of default covers V100 GPUs in pool web"
    assert await bind(cluster, "a", "n2") == (200, "")
    await expect_used(cluster, ("V100@research 0.375", "V100@research 0.5"))
    pod(cluster, "b", 6)
    answer = await fit(cluster, "b")
    assert answer["NodeNames"] == []
    why = answer["FailedNodes"]["n2"]
    assert why.startswith("GPUQuota gpus is 0.5 V100 GPUs in pool research: 0.375 held")
    status, error = await bind(cluster, "b", "n2")
    assert (status, "GPUQuota gpus is 0.5" in error) == (500, True)


@pytest.mark.slow
@pytest.mark.parametrize("write", range(1, 13))
def test_a_replica_that_is_killed_at_a_write_leaves_nothing_that_counts(write: int) -> None:
    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        limit(cluster, {"gpus": 1})
        overshoots = watch_overshoot(cluster, 1_000_000)
        await start(cluster, *REPLICAS)

        def kill() -> None:
            cluster.beside(again())

        async def again() -> None:
            await cluster.kill("extender")
            await cluster.quiet(3)
            cluster.start("extender")

        fault = Fault.reset(after=bool(write % 2), action=kill)
        cluster.server.inject_at_write(cluster.server.writes + write, fault)
        names = [f"p{number}" for number in range(4)]
        for name in names:
            pod(cluster, name, 5)
        await asyncio.gather(*(schedule(cluster, name, *REPLICAS) for name in names))
        await cluster.quiet(2 * BIND_SECONDS)
        await asyncio.gather(*(schedule(cluster, name, *REPLICAS) for name in names))
        assert overshoots == []
        assert sum(bound(the_pod(cluster, name)) for name in names) == 3

    run()


@scenario(n1=2)
async def test_the_filter_charges_a_whole_gpu_for_an_exclusion_label(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"gpus": 1})
    await start(cluster)

    async def schedule_alone(name: str, label: str) -> str:
        pod(cluster, name, 2, annotations={"kubeshare.nthu/exclusion": label})
        return await schedule(cluster, name, attempts=1)

    assert await schedule_alone("a", "x") == ""
    why = await schedule_alone("b", "y")
    assert why == "GPUQuota gpus is 1 GPUs: 1 held, 1 asked, " + WHOLE_GPU
    assert await schedule_alone("mate", "x") == ""
    await expect_holders(cluster, ["a", "mate"], [])


@scenario(n1=1)
async def test_the_filter_says_that_a_namespace_has_its_slots(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.actors.node_agents = False  # they would release holders without a pod
    await cluster.kill("devices")
    others = [manifests.holder("v", "v", namespace="victim", podUid="v")]
    own = [manifests.holder(f"d{each}", f"d{each}", podUid=f"d{each}") for each in range(32)]
    [vgpu] = vgpus(cluster)
    held = {"holders": [*others, *own], "phase": "Active"}
    cluster.server.change(
        VGPUS, vgpu["metadata"]["name"], "", lambda obj: obj["status"].update(held)
    )
    pod(cluster, "a", 2)
    await cluster.quiet(1)
    [why] = (await fit(cluster, "a"))["FailedNodes"].values()
    assert why.startswith("32 of its 128 slots are this namespace's")
    status, error = await bind(cluster, "a", "n1")
    assert (status, "32 of its 128 slots" in error) == (500, True)


@scenario(n1=2, n2=2)
async def test_two_replicas_at_once_take_one_gpu_with_labels_of_their_own(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"gpus": "1500m"})
    await start(cluster, *REPLICAS)
    for name in "ab":
        pod(cluster, name, 1, annotations={"kubeshare.nthu/exclusion": name})
    cluster.server.freeze_watches()
    await asyncio.gather(bind(cluster, "a", "n1"), bind(cluster, "b", "n2", replica=REPLICAS[1]))
    cluster.server.freeze_watches(frozen=False)
    await cluster.quiet(1)
    await asyncio.gather(*(schedule(cluster, name, *REPLICAS, attempts=3) for name in "ab"))
    assert sum(bound(the_pod(cluster, name)) for name in "ab") == 1
    await expect_used(cluster, ("GPUs 1", "GPUs 1.5"))
