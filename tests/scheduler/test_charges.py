"""Labels that keep others off a GPU are charged, and the slots of a GPU are bounded."""

from typing import Any

from expectations.pods import expect_condition, expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_shared_gpu
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.quotas import expect_used, limit
from fakes.cluster.state import holding
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import RESOURCE_QUOTAS

WHOLE = "charged as a whole GPU for its exclusion label"
MINE = {"exclusion": "mine"}


def allow(cluster: FakeCluster, gpus: str) -> None:
    hard = {"requests.kubeshare.nthu/gpu": gpus}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})


@scenario(n1=3)
async def test_small_shares_with_labels_of_their_own_take_no_more_gpus_than_the_quota(
    cluster: FakeCluster,
) -> None:
    allow(cluster, "1")
    cluster.start()
    await cluster.run("a", "0.02", exclusion="a")
    cluster.share("b", "0.02", exclusion="b")
    words = f"quota: ResourceQuota gpus allows 1 GPUs: 1 held, 1 asked, {WHOLE}"
    await expect_pending(cluster, "b", words, reason="QuotaExceeded")
    await cluster.run("mate", "0.5", exclusion="a")
    await expect_shared_gpu(cluster, "a", "mate")
    cluster.delete("a")
    cluster.delete("mate")
    await expect_running(cluster, "b")


@scenario(n1=3)
async def test_without_a_quota_labels_are_as_they_were(cluster: FakeCluster) -> None:
    cluster.start()
    for name in "abc":
        await cluster.run(name, "0.02", exclusion=name)


@scenario(n1=3)
async def test_a_gpuquota_shows_the_whole_gpu_as_used(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": 1})
    cluster.start()
    await cluster.run("a", "0.02", **MINE)
    await expect_used(cluster, ("GPUs 1", "GPUs 1"))
    cluster.share("b", "0.02", exclusion="other")
    await expect_pending(cluster, "b", WHOLE, reason="QuotaExceeded")
    await cluster.run("c", "0.3", **MINE)
    await expect_used(cluster, ("GPUs 1", "GPUs 1"))


@scenario(n1=2)
async def test_a_gang_whose_members_share_a_label_needs_one_gpu_of_quota(
    cluster: FakeCluster,
) -> None:
    allow(cluster, "1")
    cluster.start()

    def gang(name: str, *exclusions: str) -> None:
        labels = {"sharedgpu/group_name": name, "sharedgpu/min_available": "2"}
        for number, label in enumerate(exclusions):
            cluster.share(f"{name}{number}", "0.3", labels=labels, exclusion=label)

    gang("apart", "x", "y")
    await expect_pending(cluster, "apart1", reason="GangNoRoom")
    gang("mates", "z", "z")
    await expect_running(cluster, "mates0", "mates1")
    await expect_shared_gpu(cluster, "mates0", "mates1")


@scenario(n1=2)
async def test_preemption_takes_a_gpu_of_the_quota_from_its_own_namespace(
    cluster: FakeCluster,
) -> None:
    allow(cluster, "1")
    cluster.configure(preemption=True)
    cluster.start()
    marked = {"kubeshare.nthu/preemptible": "true"}
    await cluster.run("low", "0.02", exclusion="a", annotations=marked)
    cluster.share("high", "0.02", exclusion="b", labels={"sharedgpu/priority": "5"})
    await expect_running(cluster, "high")
    await expect_pending(cluster, "low", reason="QuotaExceeded")


@scenario(n1=2)
async def test_the_author_of_a_gpuid_is_charged_too(cluster: FakeCluster) -> None:
    allow(cluster, "0.5")
    cluster.start()
    cluster.share("a", "0.02", id="A", spec={"nodeName": "n1"}, **MINE)
    await expect_condition(cluster, "a", "Allocated")
    assert WHOLE in cluster.condition("a", "Allocated")["message"]


@scenario(n1=1)
async def test_a_namespace_takes_a_quarter_of_the_slots_of_anothers_gpu(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    small: dict[str, Any] = {"memory": "16Mi"}
    gpu = {"request": "0.5", "memory": "1Gi", "id": "A"}
    metadata = {"namespace": "victim"}
    victim = manifests.sharepod("v", gpu, metadata=metadata, nodeName="n1")
    cluster.server.seed(SHAREPODS, victim)
    await cluster.until(lambda: "v" in holding(cluster))
    names = [f"p{number}" for number in range(32)]
    for name in names:
        cluster.share(name, "0", **small)
    await expect_decided(cluster, *names)
    cluster.share("more", "0", **small)
    words = "32 of its 128 slots are this namespace's"
    await expect_pending(cluster, "more", words)
    cluster.share("named", "0", id="A", spec={"nodeName": "n1"}, **small)
    await expect_condition(cluster, "named", "Allocated")
    assert words in cluster.condition("named", "Allocated")["message"]
    other = manifests.sharepod("w", gpu | small, metadata={"namespace": "other"}, nodeName="n1")
    cluster.server.seed(SHAREPODS, other)
    await cluster.until(lambda: "w" in holding(cluster))
    cluster.delete("named")
    cluster.delete("p7")
    await expect_running(cluster, "more")
