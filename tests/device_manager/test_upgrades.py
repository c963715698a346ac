"""New forms of demands wait for the agent and the scheduler that carry them out."""

from expectations.pods import expect_condition, expect_running
from expectations.scheduling import expect_scheduled
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.constants import SCHEDULER
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.resources import Raw
from scheduler.test_upgrades import ALONE, hold_lease, upgrade


@scenario(n1=1)
async def test_a_gpu_that_the_author_named_waits_for_its_nodes_agent(cluster: FakeCluster) -> None:
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].pop("supportsShares"))
    cluster.start()
    cluster.share("a", id="mine", spec={"nodeName": "n1"}, **ALONE)
    found = await expect_condition(cluster, "a", "Allocated", "UpgradeInProgress")
    assert found["message"].startswith("node n1: its node agent")
    assert not cluster.vgpus()
    cluster.server.change(GPUNODES, "n1", "", upgrade)
    await expect_running(cluster, "a")


@scenario(n1=2)
async def test_a_gpu_that_the_author_named_waits_for_the_scheduler(cluster: FakeCluster) -> None:
    hold_lease(cluster, "old-1", SCHEDULER)
    cluster.start()
    cluster.share("a", id="mine", spec={"nodeName": "n1"}, **ALONE)
    cluster.share("b", "0.2")
    await expect_running(cluster, "b")
    found = await expect_condition(cluster, "a", "Allocated", "UpgradeInProgress")
    assert found["message"].startswith("the scheduler (old-1) is of an earlier version")
    # Released for good: the scheduler was replaced, and nothing of an earlier version decides.
    hold_lease(cluster, "", SCHEDULER)
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_what_an_earlier_scheduler_decided_is_decided_again(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", **ALONE)
    await expect_scheduled(cluster, "a")
    [vgpu] = cluster.server.all(VGPUS)

    def forget_limit_alone(obj: Raw) -> None:
        obj["status"]["holders"][0]["limitAloneMicros"] = 0

    cluster.server.change(VGPUS, vgpu["metadata"]["name"], "", forget_limit_alone)
    hold_lease(cluster, "old-1", SCHEDULER)
    cluster.start("devices")
    await expect_condition(cluster, "a", "Allocated", "UpgradeInProgress")
    assert cluster.pod("a") is None
    hold_lease(cluster, "new-1", SCHEDULER, leader="new-1", supports="shares")
    await expect_running(cluster, "a")
    [vgpu] = cluster.server.all(VGPUS)
    [holder] = vgpu["status"]["holders"]
    assert holder["limitAloneMicros"] == 1_000_000
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 2


@scenario(n1=1)
async def test_a_decision_for_a_gpu_with_less_memory_than_the_real_one_is_kept(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", memory="0.5", **ALONE)
    await expect_scheduled(cluster, "a")
    [vgpu] = cluster.server.all(VGPUS)

    def expect_a_smaller_gpu(obj: Raw) -> None:
        obj["spec"]["memoryBytes"] //= 2
        obj["status"]["holders"][0]["memoryBytes"] //= 2

    cluster.server.change(VGPUS, vgpu["metadata"]["name"], "", expect_a_smaller_gpu)
    cluster.start("devices")
    await expect_running(cluster, "a")
    [found] = cluster.server.all(VGPUS)
    assert found["spec"]["memoryBytes"] == vgpu["spec"]["memoryBytes"]
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1
