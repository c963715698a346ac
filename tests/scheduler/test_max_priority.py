"""A namespace's priorities count up to what its administrator allows; nothing is refused."""

from typing import Any

from expectations.pods import expect_event, expect_evictions, expect_running
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_all_scheduled,
    expect_decided,
    expect_pending,
    expect_scheduled,
)
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import SHAREPODS

MARKED = {"kubeshare.nthu/preemptible": "true"}
AS_5 = "sharedgpu/priority 100 counts as 5, the most that its namespace may have"


def priority(value: int, **more: str) -> dict[str, str]:
    labels = {"priority": str(value), **more}
    return {f"sharedgpu/{key}": text for key, text in labels.items()}


def at_most(otherwise: int, **namespaces: int) -> dict[str, Any]:
    return {"maxPriority": {"default": otherwise, "namespaces": namespaces}}


def of_another(cluster: FakeCluster, name: str, request: str, value: int) -> None:
    """A SharePod of the namespace ``other``."""
    metadata = {"namespace": "other", "labels": priority(value)}
    gpu = {"request": request, "memory": "1Gi"}
    cluster.server.seed(SHAREPODS, manifests.sharepod(name, gpu, metadata=metadata))


@scenario(n1=1)
async def test_a_higher_one_than_allowed_does_not_go_first(cluster: FakeCluster) -> None:
    cluster.configure(**at_most(5, default=50))
    of_another(cluster, "greedy", "0.6", 100)
    cluster.share("mine", "0.6", labels=priority(50))
    cluster.start("scheduler")
    await expect_event(cluster, "greedy", "NoRoom", AS_5)
    assert_scheduled(cluster, "mine")


@scenario(n1=1)
async def test_by_default_published_priorities_count_as_they_are(cluster: FakeCluster) -> None:
    cluster.share("mine", "0.6", labels=priority(50))
    of_another(cluster, "first", "0.6", 100)
    cluster.start("scheduler")
    await expect_pending(cluster, "mine", "compute 0.4 left")
    assert "counts as" not in str(cluster.events("first") + cluster.events("mine"))


@scenario(n1=1)
async def test_condition_and_events_say_what_it_counts_as(cluster: FakeCluster) -> None:
    cluster.configure(**at_most(5))
    cluster.start("scheduler")
    cluster.share("fits", "0.6", labels=priority(100))
    await expect_event(cluster, "fits", "Bound", AS_5)
    cluster.share("waits", "0.6", labels=priority(100))
    cluster.share("allowed", "0.6", labels=priority(5))
    await expect_pending(cluster, "waits", AS_5)
    await expect_event(cluster, "waits", "NoRoom", AS_5)
    await expect_pending(cluster, "allowed", "compute 0.4 left")
    assert "counts as" not in cluster.condition("allowed", "Scheduled")["message"]


@scenario(n1=1)
async def test_nobody_is_preempted_by_a_priority_that_is_not_allowed(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True, **at_most(5))
    cluster.start()
    await cluster.run("low", "0.7", annotations=MARKED, labels=priority(5))
    cluster.share("greedy", "0.7", labels=priority(100))
    await expect_decided(cluster, "greedy")
    await cluster.quiet(30)
    assert_pending(cluster, "greedy", AS_5)
    assert cluster.running("low")
    cluster.configure(preemption=True, **at_most(5, default=100))
    await expect_running(cluster, "greedy")


@scenario(n1=1)
async def test_a_priority_that_is_not_allowed_protects_no_pod(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True, **at_most(5, other=50))
    cluster.start()
    await cluster.run("greedy", "0.7", annotations=MARKED, labels=priority(100))
    of_another(cluster, "high", "0.7", 50)
    await expect_evictions(cluster, "greedy")
    await expect_event(cluster, "greedy", "Preempted", "of priority 5")


@scenario(n1=2)
async def test_the_members_of_a_gang_agree_by_their_labels(cluster: FakeCluster) -> None:
    cluster.configure(**at_most(5))
    cluster.start("scheduler")
    gang = {"group_name": "g", "min_available": "2"}
    for name in "ab":
        cluster.share(name, "1", labels=priority(100, **gang))
    await expect_all_scheduled(cluster, *"ab")
    cluster.share("c", "1", labels=priority(50, **gang))
    await expect_pending(cluster, "c", "50 differs from 100", reason="Invalid")


@scenario(n1=1)
async def test_plain_pods_are_limited_alike(cluster: FakeCluster) -> None:
    cluster.configure(**at_most(5))
    cluster.start()
    cluster.share("first", "0.7", labels=priority(5))
    await expect_scheduled(cluster, "first")
    cluster.plain("plain", "0.7", labels=priority(100))
    await expect_pending(cluster, "plain", AS_5)
