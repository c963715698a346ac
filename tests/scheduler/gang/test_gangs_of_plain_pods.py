"""Gangs of plain pods: no gate is removed before all members can start."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.scheduling import expect_pending
from expectations.vgpus import expect_activated, expect_holding
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import gates, holding
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.scheduler.requesters.base import Requester
from kubeshare.scheduler.requesters.pod import GatedPods
from kubeshare.simulator.control import Fault
from scheduler.gang.gangs import labels

Raw = dict[str, Any]


def needing(cpu: str) -> Raw:
    resources = {"limits": {VGPU_RESOURCE: "1"}, "requests": {"cpu": cpu}}
    return {"containers": [{"name": "main", "image": "train:1", "resources": resources}]}


async def two_that_need_three_of_four_cores(cluster: FakeCluster, *nodes: str) -> None:
    """With active vGPUs, so that gates are removed without a wait."""
    for node in nodes:
        cores = {"cpu": "4"}
        cluster.server.change(NODES, node, "", partial(_allocate, cores))
    cluster.reserve("n1", "x", "y")
    cluster.start("devices")
    await expect_activated(cluster)
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2), spec=needing("3"))
    cluster.start("scheduler")


def _allocate(amounts: Raw, node: Raw) -> None:
    node["status"]["allocatable"].update(amounts)


@scenario(n1=2, n2=2)
async def test_plain_pods_that_start_together_have_room_beside_each_other(
    cluster: FakeCluster,
) -> None:
    await two_that_need_three_of_four_cores(cluster, "n1", "n2")
    await expect_running(cluster, "a", "b")
    pods = [cluster.pod(name) or {} for name in "ab"]
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]


@scenario(n1=2)
async def test_none_is_let_go_where_there_is_room_for_one_only(cluster: FakeCluster) -> None:
    await two_that_need_three_of_four_cores(cluster, "n1")
    await expect_pending(cluster, "b", reason="GangNoRoom")
    words = cluster.pod_condition("a")["message"]
    assert words.startswith("gang g: room for 1 of the 2 members that it needs; n1: cpu ")
    writes = cluster.server.writes
    await cluster.quiet(30)
    assert cluster.server.writes == writes
    assert not holding(cluster)
    assert gates(cluster, "a")
    assert gates(cluster, "b")
    cluster.server.change(NODES, "n1", "", partial(_allocate, {"cpu": "8"}))
    await expect_running(cluster, "a", "b")


@scenario(n1=2)
async def test_one_that_cannot_be_told_keeps_its_mates_from_going_alone(
    cluster: FakeCluster,
) -> None:
    cluster.reserve("n1", "x", "y")
    cluster.start()
    await expect_activated(cluster)
    # The member that is written first always conflicts.
    conflict = Fault.answer(409, "Conflict")
    cluster.server.inject(conflict, verb="patch", resource="pods", name="a", times=20)
    cluster.plain("a", "0.6", labels=labels(2))
    cluster.plain("b", "0.6", labels=labels(2))
    await expect_running(cluster, "a", "b")
    found = [
        each.path.name
        for each in cluster.server.requests
        if (each.verb, each.resource) == ("patch", "pods") and each.path.name in {"a", "b"}
    ]
    assert found == ["a"] * 21 + ["b"]


@scenario(n1=2)
async def test_cpu_that_becomes_free_lets_those_in_that_fit_alone_and_not_together(
    cluster: FakeCluster,
) -> None:
    requests = {"requests": {"cpu": "4"}}
    containers = [{"name": "main", "image": "web:1", "resources": requests}]
    cluster.native_pod("other", nodeName="n1", containers=containers)
    cluster.server.change(NODES, "n1", "", partial(_allocate, {"cpu": "8"}))
    cluster.reserve("n1", "x", "y")
    cluster.start()
    await expect_activated(cluster)
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2), spec=needing("3"))
    await expect_pending(cluster, "a", "room for 1 of the 2 members", reason="GangNoRoom")
    await cluster.quiet()
    cluster.end("other")
    await expect_running(cluster, "a", "b")


def test_a_pod_that_is_bound_while_the_members_are_read_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leaves the pods that are not bound in a pause, and is among the bound ones after that."""
    in_gang = GatedPods.in_gang

    def read_twice(pods: GatedPods, namespace: str, name: str) -> Iterator[Requester]:
        for each in in_gang(pods, namespace, name):
            yield from [each, each] if each.decided else [each]

    monkeypatch.setattr(GatedPods, "in_gang", read_twice)

    @scenario(n1=2)
    async def test(cluster: FakeCluster) -> None:
        cluster.start()
        for name in "abc":
            cluster.plain(name, labels=labels(3))
        await expect_running(cluster, "a", "b", "c")
        for name in "bc":
            cluster.server.remove(PODS, name, "default")
        cluster.plain("d", labels=labels(3))
        await expect_pending(cluster, "d", "2 of the 3 members", reason="GangIncomplete")

    test()


@pytest.mark.parametrize("reads", range(3, 6))
def test_a_gang_whose_last_member_goes_while_the_members_are_read_ends(
    monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """They are read several times, with pauses between."""

    @scenario(n1=2)
    async def test(cluster: FakeCluster) -> None:
        in_gang, left = GatedPods.in_gang, reads

        def delete_all(pods: GatedPods, namespace: str, name: str) -> Iterator[Requester]:
            nonlocal left
            left -= 1
            if not left:
                for each in "ab":
                    cluster.server.remove(PODS, each, namespace)
            yield from in_gang(pods, namespace, name) if left > 0 else ()

        monkeypatch.setattr(GatedPods, "in_gang", delete_all)
        cluster.start()
        for name in "ab":
            cluster.plain(name, labels=labels(2))
        await cluster.until(lambda: left <= 0 and not holding(cluster))

    test()


def requests(cluster: FakeCluster) -> dict[str, int]:
    """The compute that each pod holds."""
    return {
        holder["name"]: holder["requestMicros"]
        for vgpu in cluster.server.all(VGPUS)
        for holder in vgpu["status"].get("holders", [])
    }


def ask_for(cluster: FakeCluster, name: str, request: str) -> None:
    asked = {"kubeshare.nthu/request": request}
    cluster.server.change(
        PODS, name, "default", lambda pod: pod["metadata"]["annotations"].update(asked)
    )


async def hold(cluster: FakeCluster) -> None:
    """Two pods hold their shares, and wait for the GPU."""
    cluster.actors.node_agents = False
    cluster.start()
    for name in "ab":
        cluster.plain(name, "0.4", labels=labels(2))
    await expect_holding(cluster, "a", "b")
    await expect_pending(cluster, "b", "gang g: ", reason="Creating")


@scenario(n1=1)
async def test_a_member_that_asks_for_something_else_gets_that(cluster: FakeCluster) -> None:
    await hold(cluster)
    ask_for(cluster, "a", "0.5")
    await cluster.until(lambda: requests(cluster) == {"a": 500_000, "b": 400_000})
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_running(cluster, "a", "b")


@scenario(n1=1)
async def test_a_share_that_only_its_node_can_release_is_waited_for(cluster: FakeCluster) -> None:
    await hold(cluster)
    [vgpu] = cluster.server.all(VGPUS)

    def used_before(obj: Raw) -> None:
        holders = [
            holder | ({"podUid": "former"} if holder["name"] == "a" else {})
            for holder in obj["status"]["holders"]
        ]
        obj["status"]["holders"] = holders

    cluster.server.change(VGPUS, vgpu["metadata"]["name"], "", used_before)
    ask_for(cluster, "a", "0.5")
    words = "gang g: the node has not released the former pod of a yet"
    for name in "ab":
        await expect_pending(cluster, name, words, reason="Releasing")
    assert requests(cluster) == {"a": 400_000}
