"""GPUQuotas in a cluster: limits by model and pool, charges, and what is left behind."""

from functools import partial

import pytest

from expectations.pods import expect_condition, expect_running
from expectations.scheduling import expect_decided, expect_pending
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.quotas import (
    expect_used,
    label_gpus,
    limit,
    quota,
    running_micros,
    watch_overshoot,
)
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import holders
from scheduler.test_quotas import allow

WEB = {"kubeshare.nthu/group": "web"}


@scenario(n1=2)
async def test_beyond_its_limit_a_namespace_waits_and_goes_on_when_something_ends(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"model": "V100", "gpus": "500m"})
    cluster.start()
    await cluster.run("a", "0.4")
    cluster.plain("b", "0.2")
    await expect_pending(cluster, "b", reason="QuotaExceeded")
    words = "quota: GPUQuota gpus is 0.5 V100 GPUs: 0.4 held, 0.2 asked"
    assert cluster.pod_condition("b")["message"].startswith(words)
    await expect_used(cluster, ("V100 0.4", "V100 0.5"))
    cluster.delete("a")
    await expect_running(cluster, "b")
    await expect_used(cluster, ("V100 0.2", "V100 0.5"))


@scenario(n1=1, n2=1)
async def test_only_the_pools_of_a_limit_may_be_used(cluster: FakeCluster) -> None:
    label_gpus(cluster, "n1", pool="web")
    label_gpus(cluster, "n2", pool="research")
    limit(cluster, {"model": "V100", "pools": ["research"], "gpus": 1})
    cluster.start()
    await cluster.run("a", "0.9")
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n2"
    cluster.share("b", "0.2")
    await expect_pending(cluster, "b", reason="QuotaExceeded")


@scenario(n1=1)
async def test_a_model_goes_by_the_label_of_its_node(cluster: FakeCluster) -> None:
    label_gpus(cluster, "n1", model="volta")
    limit(cluster, {"model": "volta", "gpus": 1})
    cluster.start()
    await cluster.run("a", "0.9")
    await expect_used(cluster, ("volta 0.9", "volta 1"))


@scenario(n1=1)
async def test_a_limit_of_a_model_that_is_not_there_says_so(cluster: FakeCluster) -> None:
    limit(cluster, {"model": "T44", "gpus": 1})
    cluster.start()
    cluster.share("a", "0.9")
    await expect_pending(cluster, "a", "no quota of default covers V100", reason="QuotaExceeded")
    await cluster.until(lambda: "status" in quota(cluster))
    matched = quota(cluster)["status"]["conditions"][0]
    assert (matched["type"], matched["status"]) == ("Matched", "False")
    assert matched["message"] == "the cluster has no T44 GPUs; it has V100"
    limit(cluster, {"model": "V100", "gpus": 1})
    await expect_running(cluster, "a")
    await cluster.until(lambda: quota(cluster)["status"]["conditions"][0]["status"] == "True")


@scenario(n1=2)
async def test_a_limit_that_is_lowered_ends_nothing_and_admits_nothing(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"gpus": 1})
    cluster.start()
    await cluster.run("a", "0.6")
    await cluster.run("b", "0.4")
    limit(cluster, {"gpus": "500m"})
    cluster.share("c", "0.1")
    await expect_pending(cluster, "c", "is 0.5 GPUs: 1 held, 0.1 asked", reason="QuotaExceeded")
    assert cluster.running("a", "b")
    cluster.delete("a")
    await expect_running(cluster, "c")


@scenario(n1=2)
async def test_a_quota_counts_what_is_older_than_itself(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a", "0.6")
    limit(cluster, {"gpus": 1})
    await expect_used(cluster, ("GPUs 0.6", "GPUs 1"))
    cluster.share("b", "0.5")
    await expect_pending(cluster, "b", reason="QuotaExceeded")


@scenario(n1=2)
async def test_a_group_has_a_limit_of_its_own(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": 2}, {"group": "web", "gpus": "500m"})
    cluster.start()
    cluster.share("a", "0.5", annotations=WEB)
    await expect_running(cluster, "a")
    cluster.share("b", "0.1", annotations=WEB)
    words = "is 0.5 GPUs for group web: 0.5 held, 0.1 asked"
    await expect_pending(cluster, "b", words, reason="QuotaExceeded")
    await cluster.run("c", "1")
    columns = ("GPUs 1.5, web:GPUs 0.5", "GPUs 2, web:GPUs 0.5")
    await expect_used(cluster, columns)


@scenario(n1=1, n2=2)
async def test_a_service_stays_on_the_model_of_its_first_pod(cluster: FakeCluster) -> None:
    cluster.server.change(
        GPUNODES, "n2", "", lambda obj: [gpu.update(model="A100") for gpu in obj["spec"]["devices"]]
    )
    limit(cluster, {"model": "V100", "gpus": 9}, {"model": "A100", "gpus": 9})
    cluster.start()
    cluster.plain("a", "0.9", owner="u", annotations={"kubeshare.nthu/model": "V100"})
    await expect_running(cluster, "a")
    cluster.plain("b", "0.9", owner="u")
    await expect_pending(cluster, "b")
    assert "no free GPU of model V100, only of A100" in cluster.pod_condition("b")["message"]
    cluster.plain("c", "0.9")
    await expect_running(cluster, "c")


@scenario(n1=2)
async def test_who_names_gpu_and_node_is_held_to_the_limit_too(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": "500m"})
    cluster.start()
    cluster.share("a", "0.9", id="mine", spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Allocated")
    assert "is 0.5 GPUs" in cluster.condition("a", "Allocated")["message"]
    assert not cluster.vgpus()
    limit(cluster, {"gpus": 1})
    await expect_running(cluster, "a")
    assert running_micros(cluster) == 900_000


@scenario(n1=2)
async def test_a_gang_is_placed_as_a_whole_or_not_at_all(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": "500m"})
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    cluster.start()
    cluster.share("a", "0.3", labels=labels)
    cluster.share("b", "0.3", labels=labels)
    await expect_pending(cluster, "b", reason="GangNoRoom")
    assert not any(map(holders, cluster.server.all(VGPUS)))
    limit(cluster, {"gpus": 1})
    await expect_running(cluster, "a", "b")
    assert running_micros(cluster) == 600_000


@scenario(n1=2)
async def test_without_a_gpuquota_of_its_namespace_nothing_more_is_written(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"gpus": 0}, namespace="other")
    cluster.start()
    await cluster.run("a", "0.9")
    writes = [each for each in cluster.server.requests if each.resource == "gpuquotas/status"]
    assert {each.path.namespace for each in writes} == {"other"}


@scenario(n1=2)
async def test_the_stricter_of_both_kinds_of_quota_wins(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": 1})
    allow(cluster)
    cluster.start("scheduler")
    cluster.share("a", "0.9")
    await expect_pending(cluster, "a", "ResourceQuota gpus allows 0.5", reason="QuotaExceeded")
    cluster.share("b", "0.4")
    await expect_decided(cluster, "b")


@pytest.mark.parametrize("write", range(1, 9))
def test_a_scheduler_that_is_killed_at_a_write_leaves_nothing_that_counts(write: int) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        limit(cluster, {"gpus": "500m"})
        overshoots = watch_overshoot(cluster, 500_000)
        cluster.start()
        await cluster.until(lambda: "status" in quota(cluster))
        kill = partial(cluster.beside, again(cluster))
        fault = Fault.reset(after=bool(write % 2), action=kill)
        cluster.server.inject_at_write(cluster.server.writes + write, fault)
        for name in ("a", "b"):
            cluster.share(name, "0.3")
        await cluster.until(lambda: cluster.running("a") or cluster.running("b"))
        first, second = ("a", "b") if cluster.running("a") else ("b", "a")
        await expect_pending(cluster, second, reason="QuotaExceeded")
        cluster.delete(first)
        await expect_running(cluster, second)
        assert overshoots == []

    async def again(cluster: FakeCluster) -> None:
        await cluster.kill("scheduler")
        await cluster.quiet(3)
        cluster.start("scheduler")

    run()
