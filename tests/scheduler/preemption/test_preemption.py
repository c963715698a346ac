"""Preemptible pods are evicted for demands of higher priority."""

from typing import Any

import pytest

from expectations.pods import expect_event, expect_evictions, expect_running
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_pending,
    expect_scheduled,
)
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.scheduler.preemption.nominations import NOMINATION_SECONDS
from kubeshare.simulator.control import Fault

REFUSED = Fault.answer(429, "TooManyRequests")
MARKED = {"kubeshare.nthu/preemptible": "true"}


def high(value: int = 5) -> dict[str, str]:
    return {"sharedgpu/priority": str(value)}


def evicted(cluster: FakeCluster) -> list[str]:
    """The pods that were asked to leave, in that order."""
    return [
        each.path.name
        for each in cluster.server.requests
        if each.resource == "pods/eviction" and not each.body["deleteOptions"].get("dryRun")
    ]


async def low_ones(cluster: FakeCluster, **requests: str) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    for name, request in requests.items():
        await cluster.run(name, request, annotations=MARKED)


@scenario(n1=1)
async def test_the_marked_one_leaves_and_both_sides_are_told_why(cluster: FakeCluster) -> None:
    await low_ones(cluster, low="0.7")
    gpuid = assert_scheduled(cluster, "low").gpuid
    cluster.share("high", "0.7", labels=high())
    await expect_running(cluster, "high")
    assert evicted(cluster) == ["low"]
    await expect_pending(cluster, "low")
    [preempting] = [event for event in cluster.events("high") if event.startswith("Preempting")]
    assert f"up to 0: low leaves n1/{gpuid}. It is bound when" in preempting
    [preempted] = [event for event in cluster.events("low") if event.startswith("Preempted")]
    assert "make room for SharePod default/high of priority 5: it is preemptible" in preempted
    regarding = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "name": "low",
        "namespace": "default",
        "uid": cluster.sharepod("low")["metadata"]["uid"],
    }
    assert regarding in [
        event["regarding"] for event in cluster.server.all(EVENTS) if event["reason"] == "Preempted"
    ]


@scenario(n1=1)
async def test_a_demand_of_another_namespace_is_not_named_to_the_pod_that_leaves(
    cluster: FakeCluster,
) -> None:
    await low_ones(cluster, low="0.7")
    metadata = {"namespace": "secret", "labels": high()}
    gpu = {"request": "0.7", "memory": "1Gi"}
    cluster.server.seed(SHAREPODS, manifests.sharepod("high", gpu, metadata=metadata))
    await expect_event(cluster, "low", "make room for a demand of another namespace of priority 5")
    assert "secret" not in str(cluster.events("low"))


@scenario(n1=1)
async def test_a_pod_that_starts_after_the_demand_of_high_priority_waits_is_preempted(
    cluster: FakeCluster,
) -> None:
    """A share has nobody to evict until its pod is there."""
    cluster.configure(preemption=True)
    cluster.start("scheduler")
    cluster.share("low", "0.7", annotations=MARKED)
    await expect_scheduled(cluster, "low")
    cluster.share("high", "0.7", labels=high())
    await expect_pending(cluster, "high", "compute 0.3 left")
    await cluster.quiet()
    cluster.start("devices")
    await expect_running(cluster, "high")
    assert evicted(cluster) == ["low"]


@scenario(n1=1)
async def test_a_pod_that_is_marked_while_the_demand_of_high_priority_waits_is_preempted(
    cluster: FakeCluster,
) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    cluster.plain("low", "0.7")
    await expect_running(cluster, "low")
    cluster.share("high", "0.7", labels=high())
    await expect_pending(cluster, "high", "compute 0.3 left")
    await cluster.quiet(30)
    assert evicted(cluster) == []
    cluster.server.change(
        PODS, "low", "default", lambda pod: pod["metadata"]["annotations"].update(MARKED)
    )
    await expect_running(cluster, "high", seconds=60)
    assert evicted(cluster) == ["low"]


@scenario(n1=1)
async def test_nobody_is_preempted_where_the_configuration_does_not_say_so(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("low", "0.7", annotations=MARKED)
    cluster.share("high", "0.7", labels=high())
    await expect_decided(cluster, "high")
    await cluster.quiet(30)
    assert evicted(cluster) == []
    cluster.configure(preemption=True)
    await expect_running(cluster, "high")


@pytest.mark.parametrize(
    "low",
    [
        {},
        {"annotations": {"kubeshare.nthu/preemptible": "false"}},
        {"annotations": MARKED, "labels": high(5)},
        {"annotations": MARKED, "labels": high(6)},
        {"annotations": MARKED, "id": "mine", "spec": {"nodeName": "n1"}},
    ],
    ids=["not marked", "marked with no", "same priority", "higher priority", "GPU given by name"],
)
def test_is_left_in_peace(low: dict[str, Any]) -> None:
    @scenario(n1=1)
    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        await cluster.run("low", "0.7", **low)
        cluster.share("high", "0.7", labels=high(5))
        await expect_decided(cluster, "high")
        await cluster.quiet(30)
        assert_pending(cluster, "high")
        assert evicted(cluster) == []

    play()


@scenario(n1=2)
async def test_a_budget_that_refuses_has_another_one_leave(cluster: FakeCluster) -> None:
    await low_ones(cluster, a="0.6", b="0.7")
    # Evicting the smaller one would cost less.
    cluster.server.inject(REFUSED, verb="create", resource="pods/eviction", name="a", times=100)
    cluster.share("high", "0.8", labels=high())
    await expect_running(cluster, "high")
    assert evicted(cluster) == ["b"]
    assert cluster.running("a")


@scenario(n1=1)
async def test_where_all_budgets_refuse_it_waits_and_asks_again(cluster: FakeCluster) -> None:
    await low_ones(cluster, low="0.7")
    cluster.server.inject(REFUSED, verb="create", resource="pods/eviction", times=3)
    cluster.share("high", "0.7", labels=high())
    await expect_running(cluster, "high")
    asked = [each for each in cluster.server.requests if each.resource == "pods/eviction"]
    assert len(asked) == 5
    assert evicted(cluster) == ["low"]
    assert asked[-1].at - asked[0].at > 15


@scenario(n1=1)
async def test_who_could_not_be_asked_to_leave_is_asked_again_at_once(cluster: FakeCluster) -> None:
    await low_ones(cluster, low="0.7")
    # The dry run goes well, and then the API server fails.
    fault = Fault.answer(500, "InternalError")
    cluster.server.inject(fault, verb="create", resource="pods/eviction", skip=1)
    cluster.share("high", "0.7", labels=high())
    await expect_running(cluster, "high", seconds=5)
    assert evicted(cluster) == ["low", "low"]
    preempting = [event for event in cluster.events("high") if event.startswith("Preempting")]
    assert len(preempting) == 1


@scenario(n1=2)
async def test_a_budget_that_changes_between_two_evictions_is_asked_again(
    cluster: FakeCluster,
) -> None:
    await low_ones(cluster, a="0.9", b="0.9")
    cluster.server.inject(REFUSED, verb="create", resource="pods/eviction", skip=3)
    cluster.share("high", "0.9", count=2, labels=high())
    await expect_running(cluster, "high", seconds=60)
    first, *others = evicted(cluster)
    assert len(others) == 2
    assert {*others} == {"a", "b"} - {first}


@scenario(n1=1)
async def test_nobody_leaves_in_vain(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    await cluster.run("fixed", "0.5")
    await cluster.run("low", "0.4", annotations=MARKED)
    cluster.share("high", "0.6", labels=high())
    await expect_decided(cluster, "high")
    await cluster.quiet(5)
    before = cluster.reconciles("scheduler")
    await cluster.quiet(30)
    assert evicted(cluster) == []
    assert cluster.reconciles("scheduler") == before


@scenario(n1=1)
async def test_the_place_is_kept_from_those_of_lower_priority_until_it_is_free(
    cluster: FakeCluster,
) -> None:
    await low_ones(cluster, a="0.4", b="0.4")
    cluster.actors.node_agents = False  # no share is released
    cluster.share("high", "0.9", labels=high())
    await expect_evictions(cluster, "a", "b")
    cluster.share("small", "0.1")
    await expect_pending(cluster, "small", "kept for SharePod default/high of priority 5")
    cluster.actors.node_agents = True
    await expect_running(cluster, "high")
    assert sorted(evicted(cluster)) == ["a", "b"]
    await expect_running(cluster, "small")


@scenario(n1=1)
async def test_a_place_is_not_kept_for_ever(cluster: FakeCluster) -> None:
    await low_ones(cluster, a="0.8")
    cluster.actors.node_agents = False
    cluster.share("high", "0.9", labels=high())
    await expect_evictions(cluster, "a")
    cluster.share("small", "0.1")
    await expect_pending(cluster, "small")
    await expect_scheduled(cluster, "small", seconds=NOMINATION_SECONDS + 60)


@scenario(n1=2)
async def test_a_gang_preempts_as_many_as_it_needs_and_no_more(cluster: FakeCluster) -> None:
    await low_ones(cluster, a="1", b="0.9")
    said = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"} | high()
    for name in ("x", "y"):
        cluster.share(name, "0.5", labels=said)
    await expect_running(cluster, "x", "y")
    assert evicted(cluster) == ["b"]
    assert cluster.shares_gpu("x", "y")
    assert any("gang g of namespace default" in event for event in cluster.events("b"))


@scenario(n1=2)
async def test_nobody_else_leaves_while_the_gpu_of_one_that_left_is_given_back(
    cluster: FakeCluster,
) -> None:
    """Where the vGPU is deleted before its room can be used."""
    await low_ones(cluster, a="1", b="0.9")

    given_back = {"phase": "Deleting"}

    def delete_first(*_: object) -> None:
        for vgpu in cluster.server.all(VGPUS):
            name, status = vgpu["metadata"]["name"], vgpu.get("status", {})
            if status.get("phase") == "Active" and not status.get("holders") and evicted(cluster):
                cluster.server.change(VGPUS, name, "", lambda obj: obj["status"].update(given_back))

    cluster.server.storage.after_change.append(delete_first)
    cluster.share("high", "0.5", labels=high())
    await expect_running(cluster, "high")
    assert len(evicted(cluster)) == 1


@scenario(n1=1)
async def test_the_one_of_the_lowest_priority_leaves(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    await cluster.run("mid", "0.4", annotations=MARKED, labels=high(1))
    await cluster.run("low", "0.5", annotations=MARKED, labels=high(-1))
    cluster.share("high", "0.4", labels=high())
    await expect_running(cluster, "high")
    assert evicted(cluster) == ["low"]


@scenario(n1=1)
async def test_the_budgets_of_all_are_asked_even_if_one_of_them_is_gone(
    cluster: FakeCluster,
) -> None:
    await low_ones(cluster, a="0.5", b="0.4")
    for fault, times in ((Fault.answer(404, "NotFound"), 1), (REFUSED, 2)):
        cluster.server.inject(fault, verb="create", resource="pods/eviction", times=times)
    cluster.share("high", "0.9", labels=high())
    await expect_decided(cluster, "high")
    await cluster.quiet(5)
    assert evicted(cluster) == []
    await expect_running(cluster, "high")
    assert sorted(evicted(cluster)) == ["a", "b"]


@scenario(n1=2)
async def test_a_pod_whose_priority_cannot_be_read_stays_and_another_leaves(
    cluster: FakeCluster,
) -> None:
    await low_ones(cluster, a="0.6", b="0.7")
    priority = {"sharedgpu/priority": "many"}
    cluster.server.change(PODS, "a", "default", lambda pod: pod["metadata"].update(labels=priority))
    cluster.share("high", "0.8", labels=high())
    await expect_running(cluster, "high")
    assert evicted(cluster) == ["b"]
