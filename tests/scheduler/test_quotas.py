"""ResourceQuotas over shares of GPUs, in a cluster."""

from typing import Any

from expectations.pods import expect_condition, expect_running
from expectations.scheduling import expect_decided, expect_pending
from fakes.cluster import FakeCluster, scenario
from kubeshare.kube.resources import RESOURCE_QUOTAS


def allow(cluster: FakeCluster, **more: Any) -> None:
    hard = {"requests.kubeshare.nthu/gpu": "500m", "requests.kubeshare.nthu/gpu-memory": "2Gi"}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard | more}})


@scenario(n1=2)
async def test_beyond_its_quota_a_namespace_waits_and_goes_on_when_something_ends(
    cluster: FakeCluster,
) -> None:
    allow(cluster)
    cluster.start()
    await cluster.run("a", "0.4")
    cluster.plain("b", "0.2")
    await expect_pending(cluster, "b", reason="QuotaExceeded")
    words = "quota: ResourceQuota gpus allows 0.5 GPUs: 0.4 held, 0.2 asked"
    assert cluster.pod_condition("b")["message"] == words
    cluster.delete("a")
    await expect_running(cluster, "b")


@scenario(n1=2)
async def test_memory_is_limited_as_well(cluster: FakeCluster) -> None:
    allow(cluster)
    cluster.start("scheduler")
    cluster.share("a", "0.1", memory="3Gi")
    await expect_pending(cluster, "a", "2Gi of GPU memory", reason="QuotaExceeded")


@scenario(n1=2)
async def test_a_quota_that_is_raised_lets_those_in_that_wait(cluster: FakeCluster) -> None:
    allow(cluster)
    cluster.start()
    cluster.share("a", "0.9")
    await expect_decided(cluster, "a")
    allow(cluster, **{"requests.kubeshare.nthu/gpu": "1"})
    await expect_running(cluster, "a")


@scenario(n1=2)
async def test_who_names_gpu_and_node_is_held_to_the_quota_too(cluster: FakeCluster) -> None:
    allow(cluster)
    cluster.start()
    cluster.share("a", "0.9", id="mine", spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Allocated")
    assert "allows 0.5 GPUs" in cluster.condition("a", "Allocated")["message"]
    assert not cluster.vgpus()


@scenario(n1=2)
async def test_a_quota_for_some_pods_only_or_of_another_namespace_is_nobodys(
    cluster: FakeCluster,
) -> None:
    allow(cluster)
    cluster.server.change(
        RESOURCE_QUOTAS,
        "gpus",
        "default",
        lambda quota: quota["spec"].update(scopes=["BestEffort"]),
    )
    cluster.server.seed(
        RESOURCE_QUOTAS,
        {
            "metadata": {"name": "gpus", "namespace": "other"},
            "spec": {"hard": {"requests.kubeshare.nthu/gpu": "0"}},
        },
    )
    cluster.start()
    await cluster.run("a", "0.9")


@scenario(n1=1)
async def test_a_gang_is_placed_within_the_quota_or_not_at_all(cluster: FakeCluster) -> None:
    allow(cluster, **{"requests.kubeshare.nthu/gpu": "500m"})
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    cluster.start()
    cluster.share("a", "0.3", labels=labels)
    cluster.share("b", "0.3", labels=labels)
    await expect_pending(cluster, "b", reason="GangNoRoom")
    await cluster.quiet()
    assert not any(cluster.vgpus().values())
