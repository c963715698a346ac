"""A decision that cannot be written, or is no longer right, leaves no holder behind."""

from expectations.pods import expect_condition, expect_running
from expectations.scheduling import expect_pending, expect_scheduled
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster_objects import GIB
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import Raw
from kubeshare.simulator.control import Fault

INVALID = Fault.answer(400, "BadRequest")


@scenario(n1=1)
async def test_a_sharepod_that_is_refused_gives_its_share_back(cluster: FakeCluster) -> None:
    cluster.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    cluster.share("a", "0.7")
    cluster.start("scheduler")
    await expect_condition(cluster, "a", CONDITION_SCHEDULED, "Invalid", status="False")
    await expect_holders(cluster, [])
    cluster.share("b", "0.7")
    await expect_scheduled(cluster, "b")


@scenario(n1=2)
async def test_all_shares_of_a_refused_sharepod_are_given_back(cluster: FakeCluster) -> None:
    cluster.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    cluster.share("a", "0.7", count=2)
    cluster.start("scheduler")
    await expect_condition(cluster, "a", CONDITION_SCHEDULED, "Invalid", status="False")
    await expect_holders(cluster, [], [])
    for gpuid in cluster.vgpus():
        assert cluster.vgpu(gpuid)["status"]["summary"]["requested"] == "0"


@scenario(n1=1)
async def test_a_limit_that_changes_before_the_decision_is_written_is_stored(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="patch", resource="sharepods")
    cluster.share("a", "0.3", limit="0.6")
    cluster.start("scheduler")
    await expect_holders(cluster, ["a"])
    await cluster.kill("scheduler")
    cluster.server.change(
        SHAREPODS, "a", "default", lambda raw: raw["spec"]["gpu"].update(limit="0.4")
    )
    cluster.start("scheduler")
    placed = await expect_scheduled(cluster, "a")
    [holder] = cluster.vgpu(placed.gpuid)["status"]["holders"]
    assert holder["limitMicros"] == 400_000


@scenario(n1=2)
async def test_a_share_of_memory_stays_as_reserved_on_a_larger_gpu_than_expected(
    cluster: FakeCluster,
) -> None:
    def enlarge(obj: Raw) -> None:
        obj["spec"]["devices"][0]["memoryBytes"] = 32 * GIB

    cluster.server.change(GPUNODES, "n1", "", enlarge)
    cluster.start()
    cluster.plain("a", annotations={"kubeshare.nthu/memory": "0.5"})
    await expect_running(cluster, "a")
    [vgpu] = cluster.server.all(VGPUS)
    assert vgpu["spec"]["memoryBytes"] == 32 * GIB
    [holder] = vgpu["status"]["holders"]
    assert holder["memoryBytes"] == 8 * GIB


@scenario(n1=1)
async def test_a_demand_that_does_not_fit_stores_nothing(cluster: FakeCluster) -> None:
    cluster.share("a", "0.7")
    cluster.share("b", "0.7")
    cluster.start("scheduler")
    await expect_pending(cluster, "b")
    await expect_holders(cluster, ["a"])
