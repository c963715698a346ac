"""Room that is reserved for a requester is freed with it, and bounded in number."""

from typing import Any

import pytest

from expectations.pods import expect_deleted, expect_evictions
from expectations.scheduling import expect_decided, expect_pending, expect_scheduled
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import evicted
from kubeshare.api.types import core_v1, v1
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.meta import ObjectMeta
from kubeshare.scheduler.preemption import nominations, victims
from kubeshare.scheduler.preemption.nominations import MAX_NOMINATIONS, Nomination, Nominations

MARKED = {"kubeshare.nthu/preemptible": "true"}
HIGH = {"sharedgpu/priority": "5"}


@scenario(n1=1)
async def test_a_deleted_requester_frees_the_room_reserved_for_it(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    await cluster.run("low", "0.8", annotations=MARKED)
    cluster.actors.node_agents = False  # the share of the evicted pod is not released
    cluster.share("high", "0.9", labels=HIGH)
    await expect_evictions(cluster, "low")
    cluster.share("small", "0.1")
    await expect_pending(cluster, "small", "kept for SharePod default/high of priority 5")
    cluster.delete("high")
    await expect_deleted(cluster, "high")
    # Long before the nomination expires, and without another change in the cluster.
    await expect_scheduled(cluster, "small", seconds=5)


@scenario(n1=1)
async def test_a_deleted_gang_frees_the_room_reserved_for_it(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    await cluster.run("low", "0.8", annotations=MARKED)
    cluster.actors.node_agents = False  # the share of the evicted pod is not released
    gang = HIGH | {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    for name in ("a", "b"):
        cluster.share(name, "0.4", labels=gang)
    await expect_evictions(cluster, "low")
    cluster.share("small", "0.1")
    await expect_pending(cluster, "small", "kept for gang g of namespace default of priority 5")
    for name in ("a", "b"):
        cluster.delete(name)
    await expect_deleted(cluster, "a", "b")
    await expect_scheduled(cluster, "small", seconds=5)


@scenario(n1=2)
async def test_a_victim_that_still_holds_its_share_is_waited_for(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    for name in ("a", "b"):
        await cluster.run(name, "0.4", annotations=MARKED)
    [gpuid] = cluster.vgpus()
    # Its room would do as well, but it is of a higher priority than the two.
    await cluster.run("c", "0.9", annotations=MARKED, labels={"sharedgpu/priority": "1"})
    cluster.actors.node_agents = False
    cluster.share("high", "1", labels=HIGH)
    await expect_evictions(cluster, "a", "b")

    def release_one(raw: dict[str, Any]) -> None:
        status = raw["status"]
        status["holders"] = [each for each in status["holders"] if each["name"] == "b"]
        status["summary"] |= {"holders": 1, "requested": "0.4"}

    cluster.server.change(VGPUS, gpuid, "", release_one)
    await cluster.quiet(10)
    await expect_evictions(cluster, "a", "b")
    reported = [event for event in cluster.events("high") if event.startswith("Preempting")]
    assert len(reported) == 1


@pytest.mark.parametrize("allowed", [1, 2])
def test_no_more_pods_are_evicted_than_nominations_are_allowed(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nominations, "MAX_NOMINATIONS", allowed)

    @scenario(n1=2)
    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        for name in ("a", "b"):
            await cluster.run(name, "0.9", annotations=MARKED)
        cluster.actors.node_agents = False
        for name in ("x", "y"):
            cluster.share(name, "0.9", labels=HIGH)
        await expect_decided(cluster, "y")
        await cluster.quiet(30)
        assert len(evicted(cluster)) == allowed

    play()


def test_the_number_of_nominations_is_bounded() -> None:
    known = Nominations()

    def nominate(owner: str) -> None:
        known.add(
            Nomination(
                owner=owner,
                uids=frozenset([owner]),
                priority=5,
                devices={},
                victims=frozenset(),
                until=10.0,
            )
        )

    for number in range(MAX_NOMINATIONS - 1):
        nominate(str(number))
    assert MAX_NOMINATIONS == 64
    assert not known.full(0.0)
    nominate("last")
    assert known.full(0.0)
    known.remove("last")
    assert not known.full(0.0)


def a_vgpu(name: str, pod_uid: str, attempt: int = 1) -> v1.VGPU:
    holder = v1.Holder(demand="d", attempt=attempt, pod_uid=pod_uid)
    return v1.VGPU(
        metadata=ObjectMeta(name=name),
        spec=v1.VGPUSpec(node_name="n1"),
        status=v1.VGPUStatus(holders=(holder,)),
    )


@pytest.mark.parametrize(
    ("second", "is_victim"),
    [(a_vgpu("b", "d"), True), (a_vgpu("b", ""), False), (a_vgpu("b", "d", 0), False)],
    ids=["both assigned", "one not assigned to its pod", "one chosen by its author"],
)
def test_a_pod_is_a_victim_only_if_all_its_shares_are_its_own(
    second: v1.VGPU, *, is_victim: bool
) -> None:
    pod = core_v1.Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="d", annotations=MARKED),
        spec=core_v1.PodSpec(node_name="n1"),
    )
    found = victims.victims_of([pod], lambda _: [a_vgpu("a", "d"), second], lambda _: 100)
    assert [victim.uid for victim in found] == (["d"] if is_victim else [])
