"""kube-scheduler finds no room on the node that KubeShare chose."""

import asyncio
import itertools
from typing import Any

import pytest

from expectations import (
    assert_scheduled,
    expect_attempt,
    expect_condition,
    expect_no_pod,
    expect_no_vgpus,
    expect_pending,
    expect_pod,
    expect_ready,
    expect_running,
    expect_scheduled,
    expect_terminating,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.predicates.exclusions import MAX_RESCHEDULES
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault


def aside(world: World) -> list[str]:
    return [entry["node"] for entry in world.sharepod("a")["spec"]["gpu"].get("setAside", [])]


@scenario(n1=1, n2=2)
async def test_a_sharepod_whose_node_is_full_runs_on_another_one(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    assert_scheduled(world, "a", node="n2")
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 2
    assert aside(world) == ["n1"]
    assert len(world.vgpus()) == len(world.placeholders()) == 1
    [rescheduled] = [event for event in world.events("a") if event.startswith("NodeFull")]
    assert "node n1 has no room for its pod (kube-scheduler says: insufficient cpu)" in rescheduled


@scenario(n1=1)
async def test_without_another_node_it_waits_says_why_and_comes_back(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    await expect_scheduled(world, "a")
    await expect_pending(world, "a", "n1: set aside until", "insufficient cpu")
    await expect_condition(world, "a", "Allocated", "NodeFull")
    await expect_no_vgpus(world)
    assert world.pod("a") is None
    world.actors.full.clear()
    await expect_ready(world, "a", seconds=90)


@pytest.mark.slow
@scenario(n1=1)
async def test_the_pauses_grow_and_it_is_moved_so_many_times_an_hour_and_no_more(
    world: World,
) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    moved: list[float] = []

    def count(*_: Any) -> None:
        attempt = world.sharepod("a")["spec"]["gpu"].get("attempt", 0)
        if world.sharepod("a")["spec"].get("nodeName") is None and attempt > len(moved):
            moved.append(asyncio.get_running_loop().time())

    world.server.storage.after_change.append(count)
    await world.quiet(6 * 3600)
    pauses = [later - earlier for earlier, later in itertools.pairwise(moved)]
    assert len(moved) <= 6 * (MAX_RESCHEDULES + 1)
    assert pauses[:5] == sorted(pauses[:5])
    assert pauses[3] > 4 * pauses[0]


@scenario(n1=1, n2=1)
async def test_room_that_comes_in_time_is_taken(world: World) -> None:
    world.actors.full |= {"n1", "n2"}
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    await world.quiet(5)
    world.actors.full.clear()
    world.actors.reconcile()
    await expect_ready(world, "a")
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1
    assert aside(world) == []


@scenario(n1=1, n2=1)
async def test_a_pod_for_which_kube_scheduler_makes_room_is_waited_for(world: World) -> None:
    world.actors.full |= {"n1", "n2"}
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    nominated = {"nominatedNodeName": "n1"}
    world.server.change(PODS, "a", "default", lambda pod: pod["status"].update(nominated))
    await world.quiet(120)
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1, n2=1)
async def test_a_node_that_the_author_chose_is_kept(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a", id="mine", spec={"nodeName": "n1"})
    await expect_condition(world, "a", "Ready", "Unschedulable")
    await world.quiet(600)
    assert world.sharepod("a")["spec"]["nodeName"] == "n1"
    assert world.vgpus() == {"mine": ["a"]}


@scenario(n1=1, n2=2)
async def test_a_pod_that_was_bound_meanwhile_is_not_deleted(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    await expect_pod(world, "a")

    def bind() -> None:
        world.actors.full.clear()
        world.actors.reconcile()

    world.server.inject(Fault.preceded_by(bind), verb="delete", resource="pods")
    await expect_ready(world, "a")
    assert_scheduled(world, "a", node="n1")
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1, n2=2)
async def test_a_pod_that_stays_for_its_finalizers_is_waited_for(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    kept = {"finalizers": ["theirs"]}
    world.server.change(PODS, "a", "default", lambda pod: pod["metadata"].update(kept))
    await expect_terminating(world, "a")
    await world.quiet(30)
    assert [*world.vgpus().values()] == [["a"]], "its part was given back before its pod was gone"
    assert world.sharepod("a")["spec"]["nodeName"] == "n1"
    world.server.remove(PODS, "a", "default")
    await expect_ready(world, "a")
    assert_scheduled(world, "a", node="n2")
    assert aside(world) == ["n1"]


@scenario(n1=1, n2=2)
async def test_a_device_manager_killed_between_pod_and_undoing_does_it_again(
    world: World,
) -> None:
    world.actors.full.add("n1")
    world.start()
    world.share("a")
    await expect_pod(world, "a")

    async def strike() -> None:
        await expect_no_pod(world, "a")
        await world.kill("devices")
        world.start("devices")

    world.beside(strike())
    await expect_ready(world, "a", seconds=120)
    assert_scheduled(world, "a", node="n2")
    assert len(world.vgpus()) == 1


@scenario(n1=1, n2=2)
async def test_a_sharepod_of_annotations_alone_is_moved_too(world: World) -> None:
    world.actors.full.add("n1")
    world.start()
    asked = {"request": "0.3", "limit": "1", "mem": "0.3"}
    annotations = {f"kubeshare/gpu_{name}": value for name, value in asked.items()}
    world.share("a", None, annotations=annotations)
    await expect_ready(world, "a")
    assert_scheduled(world, "a", node="n2")
    stored = world.server.stored(SHAREPODS, "a", "default")
    assert stored is not None
    written = {"kubeshare/GPUID": stored["spec"]["gpu"]["id"]}
    assert stored["metadata"]["annotations"] == annotations | written


@scenario(n1=1, n2=2)
async def test_a_node_whose_gpus_cannot_be_shared_is_set_aside(world: World) -> None:
    world.actors.sliced.add("n1")
    world.start()
    world.share("a")
    await expect_condition(world, "a", "Allocated", "NotShareable")
    await expect_ready(world, "a")
    assert_scheduled(world, "a", node="n2")
    assert aside(world) == ["n1"]
    await expect_vgpus(world, 1, placeholders=1)


@scenario(n1=1)
async def test_without_another_node_it_is_told_that_its_gpu_cannot_be_shared(
    world: World,
) -> None:
    world.actors.sliced.add("n1")
    world.start()
    world.share("a")
    await expect_condition(world, "a", "Allocated", "NotShareable")
    await world.quiet(120)
    assert "MIG instance" in world.condition("a", "Allocated")["message"]
    world.share("b")
    await expect_pending(world, "b")


@scenario(n1=1, n2=2)
async def test_a_node_of_the_authors_outlives_the_decision_which_gpu(world: World) -> None:
    world.start()
    world.share("a", spec={"nodeName": "n2"})
    await expect_running(world, "a")
    world.actors.full.add("n2")
    first = the_pod(world, "a")
    world.actors.delete(first)
    await expect_attempt(world, "a", 2)
    await world.quiet(120)
    assert world.sharepod("a")["spec"]["nodeName"] == "n2"
    assert aside(world) == []
    world.actors.full.clear()
    world.actors.reconcile()
    await expect_running(world, "a")
    assert_scheduled(world, "a", node="n2")
