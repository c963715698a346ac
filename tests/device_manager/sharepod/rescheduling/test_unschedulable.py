"""kube-scheduler finds no room on the node that KubeShare chose."""

import asyncio
import itertools
from typing import Any

import pytest

import samples
from expectations.pods import (
    expect_condition,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
    expect_terminating,
)
from expectations.scheduling import (
    assert_scheduled,
    expect_attempt,
    expect_pending,
    expect_scheduled,
)
from expectations.vgpus import expect_no_vgpus, expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.predicates.exclusions import MAX_RESCHEDULES
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault

HOURS = samples.count(whole=6, sample=2)


def aside(cluster: FakeCluster) -> list[str]:
    return [entry["node"] for entry in cluster.sharepod("a")["spec"]["gpu"].get("setAside", [])]


@scenario(n1=1, n2=2)
async def test_a_sharepod_whose_node_is_full_runs_on_another_one(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 2
    assert aside(cluster) == ["n1"]
    assert len(cluster.vgpus()) == len(cluster.placeholders()) == 1
    [rescheduled] = [event for event in cluster.events("a") if event.startswith("NodeFull")]
    assert "node n1 has no room for its pod (kube-scheduler says: insufficient cpu)" in rescheduled


@scenario(n1=1)
async def test_without_another_node_it_waits_says_why_and_comes_back(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_scheduled(cluster, "a")
    await expect_pending(cluster, "a", "n1: set aside until", "insufficient cpu")
    await expect_condition(cluster, "a", "Allocated", "NodeFull")
    await expect_no_vgpus(cluster)
    assert cluster.pod("a") is None
    cluster.actors.full.clear()
    await expect_ready(cluster, "a", seconds=90)


@pytest.mark.slow
@pytest.mark.sampled
@scenario(n1=1)
async def test_the_pauses_grow_and_it_is_moved_so_many_times_an_hour_and_no_more(
    cluster: FakeCluster,
) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    moved: list[float] = []

    def count(*_: Any) -> None:
        attempt = cluster.sharepod("a")["spec"]["gpu"].get("attempt", 0)
        if cluster.sharepod("a")["spec"].get("nodeName") is None and attempt > len(moved):
            moved.append(asyncio.get_running_loop().time())

    cluster.server.storage.after_change.append(count)
    await cluster.quiet(HOURS * 3600)
    pauses = [later - earlier for earlier, later in itertools.pairwise(moved)]
    assert len(moved) <= HOURS * (MAX_RESCHEDULES + 1)
    assert pauses[:5] == sorted(pauses[:5])
    assert pauses[3] > 4 * pauses[0]


@scenario(n1=1, n2=1)
async def test_room_that_comes_in_time_is_taken(cluster: FakeCluster) -> None:
    cluster.actors.full |= {"n1", "n2"}
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    await cluster.quiet(5)
    cluster.actors.full.clear()
    cluster.actors.reconcile()
    await expect_ready(cluster, "a")
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1
    assert aside(cluster) == []


@scenario(n1=1, n2=1)
async def test_a_pod_for_which_kube_scheduler_makes_room_is_waited_for(
    cluster: FakeCluster,
) -> None:
    cluster.actors.full |= {"n1", "n2"}
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    nominated = {"nominatedNodeName": "n1"}
    cluster.server.change(PODS, "a", "default", lambda pod: pod["status"].update(nominated))
    await cluster.quiet(120)
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1, n2=1)
async def test_a_node_that_the_author_chose_is_kept(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a", id="mine", spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Ready", "Unschedulable")
    await cluster.quiet(600)
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n1"
    assert cluster.vgpus() == {"mine": ["a"]}


@scenario(n1=1, n2=2)
async def test_a_pod_that_was_bound_meanwhile_is_not_deleted(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")

    def bind() -> None:
        cluster.actors.full.clear()
        cluster.actors.reconcile()

    cluster.server.inject(Fault.preceded_by(bind), verb="delete", resource="pods")
    await expect_ready(cluster, "a")
    assert_scheduled(cluster, "a", node="n1")
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1, n2=2)
async def test_a_pod_that_stays_for_its_finalizers_is_waited_for(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    kept = {"finalizers": ["theirs"]}
    cluster.server.change(PODS, "a", "default", lambda pod: pod["metadata"].update(kept))
    await expect_terminating(cluster, "a")
    await cluster.quiet(30)
    assert [*cluster.vgpus().values()] == [["a"]], "its part was given back before its pod was gone"
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n1"
    cluster.server.remove(PODS, "a", "default")
    await expect_ready(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
    assert aside(cluster) == ["n1"]


@scenario(n1=1, n2=2)
async def test_a_device_manager_killed_between_pod_and_undoing_does_it_again(
    cluster: FakeCluster,
) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")

    async def strike() -> None:
        await expect_no_pod(cluster, "a")
        await cluster.kill("devices")
        cluster.start("devices")

    cluster.beside(strike())
    await expect_ready(cluster, "a", seconds=120)
    assert_scheduled(cluster, "a", node="n2")
    assert len(cluster.vgpus()) == 1


@scenario(n1=1, n2=2)
async def test_a_sharepod_of_annotations_alone_is_moved_too(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.start()
    asked = {"request": "0.3", "limit": "1", "mem": "0.3"}
    annotations = {f"kubeshare/gpu_{name}": value for name, value in asked.items()}
    cluster.share("a", None, annotations=annotations)
    await expect_ready(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
    stored = cluster.server.stored(SHAREPODS, "a", "default")
    assert stored is not None
    written = {"kubeshare/GPUID": stored["spec"]["gpu"]["id"]}
    assert stored["metadata"]["annotations"] == annotations | written


@scenario(n1=1, n2=2)
async def test_a_node_whose_gpus_cannot_be_shared_is_set_aside(cluster: FakeCluster) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Allocated", "NotShareable")
    await expect_ready(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
    assert aside(cluster) == ["n1"]
    await expect_vgpus(cluster, 1, placeholders=1)


@scenario(n1=1)
async def test_without_another_node_it_is_told_that_its_gpu_cannot_be_shared(
    cluster: FakeCluster,
) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Allocated", "NotShareable")
    await cluster.quiet(120)
    assert "MIG instance" in cluster.condition("a", "Allocated")["message"]
    cluster.share("b")
    await expect_pending(cluster, "b")


@scenario(n1=1, n2=2)
async def test_a_node_of_the_authors_outlives_the_decision_which_gpu(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", spec={"nodeName": "n2"})
    await expect_running(cluster, "a")
    cluster.actors.full.add("n2")
    first = the_pod(cluster, "a")
    cluster.actors.delete(first)
    await expect_attempt(cluster, "a", 2)
    await cluster.quiet(120)
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n2"
    assert aside(cluster) == []
    cluster.actors.full.clear()
    cluster.actors.reconcile()
    await expect_running(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
