"""GPUs that the author of a SharePod names, instead of the scheduler."""

from typing import Any

from expectations import (
    expect_any_running,
    expect_condition,
    expect_event,
    expect_pod,
    expect_running,
)
from fakes.cluster import World, scenario, seed_held
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.simulator.control import Fault

CREATE_VGPU = ("create", "vgpus")


@scenario(n1=1)
async def test_a_gpuid_given_with_a_node_is_shared_by_all_who_name_it(world: World) -> None:
    world.start("devices")
    world.share("a", "0.5", id="abcde", spec={"nodeName": "n1"})
    world.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_running(world, "a", "b")
    assert world.vgpus() == {"abcde": ["a", "b"]}


@scenario(n1=1)
async def test_a_gpuid_without_room_waits_with_the_reason_until_there_is(world: World) -> None:
    world.start()
    await world.run("a", "0.6", id="abcde", spec={"nodeName": "n1"})
    world.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_condition(world, "b", "Allocated")
    condition = world.condition("b", "Allocated")
    assert condition["reason"] == "NoRoom"
    assert "compute 0.4 left, 0.5 asked" in condition["message"]
    assert world.pod("b") is None
    await expect_event(world, "b", "0.4 left")
    world.delete("a")
    await expect_running(world, "b")


@scenario(n1=1)
async def test_a_part_given_by_name_that_was_not_seen_yet_is_not_taken_twice(world: World) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("devices")
    await world.quiet(1)
    seed_held(world, "the-uid")
    made = {"metadata": {"name": "a", "namespace": "default", "uid": "the-uid"}}
    gpu = {"request": "0.1", "memory": "1Gi", "id": "x"}
    spec = {"nodeName": "n1", "gpu": gpu, "containers": [{"name": "main", "image": "i:1"}]}
    world.server.seed(SHAREPODS, made | {"spec": spec})
    await expect_running(world, "a")
    assert world.vgpus() == {"x": ["a"]}


@scenario(n1=2)
async def test_several_gpus_given_by_name_are_had_together(world: World) -> None:
    world.start()
    world.share("a", "0.6", count=2, ids=["y", "x"], spec={"nodeName": "n1"})
    await expect_running(world, "a")
    assert world.vgpus() == {"x": ["a"], "y": ["a"]}
    uids = {each["spec"]["uuid"] for each in world.server.all(VGPUS)}
    assert len(uids) == 2
    parts = [holder["parts"] for name in "xy" for holder in world.vgpu(name)["status"]["holders"]]
    assert parts == [2, 2]


@scenario(n1=2)
async def test_none_of_several_is_held_while_one_has_no_room(world: World) -> None:
    world.start()
    await world.run("b", "0.6", id="y", spec={"nodeName": "n1"})
    world.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    await expect_condition(world, "a", "Allocated")
    condition = world.condition("a", "Allocated")
    assert condition["reason"] == "NoRoom"
    assert "vGPU y on node n1: compute 0.4 left, 0.6 asked" in condition["message"]
    await world.quiet(30)
    assert world.vgpus() == {"y": ["b"]}
    world.delete("b")
    await expect_running(world, "a")


@scenario(n1=1)
async def test_more_gpus_given_by_name_than_the_node_has_are_none(world: World) -> None:
    world.start()
    world.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    await expect_condition(world, "a", "Allocated")
    assert world.condition("a", "Allocated")["reason"] == "NoRoom"
    await world.quiet(30)
    assert world.vgpus() == {}


@scenario(n1=2)
async def test_who_was_cut_off_between_two_gpus_given_by_name_gives_back_the_first(
    world: World,
) -> None:
    world.start()
    await world.run("b", "0.6", id="y", spec={"nodeName": "n1"})
    made = world.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    seed_held(world, made["metadata"]["uid"])
    await expect_condition(world, "a", "Allocated")
    await world.until(lambda: world.vgpus().get("x", []) == [])
    assert world.condition("a", "Allocated")["reason"] == "NoRoom"


async def chosen_again(world: World, name: str, **more: Any) -> dict[str, Any]:
    """Have a SharePod's part of vGPU x taken back before its pod is bound; its ask, had again."""
    world.start()
    await world.run("a", "0.5", id="x", spec={"nodeName": "n1"})
    world.actors.binds = False
    world.share(name, "0.3", **more)
    await expect_pod(world, name)
    await world.quiet(1)
    await world.kill()
    assert world.vgpus() == {"x": ["a", name]}
    world.server.change(VGPUS, "x", "", lambda vgpu: vgpu["status"]["holders"].pop())
    world.actors.binds = True
    world.actors.reconcile()
    world.start()

    def ask() -> dict[str, Any]:
        return dict(world.sharepod(name)["spec"]["gpu"])

    await world.until(lambda: world.running(name) and ask()["attempt"] == 2)
    return ask()


@scenario(n1=1)
async def test_a_vgpu_of_any_name_is_the_schedulers_choice_where_the_author_gave_only_the_node(
    world: World,
) -> None:
    ask = await chosen_again(world, "b", spec={"nodeName": "n1"})
    assert (ask["idGiven"], ask["nodeGiven"]) == (False, True)


@scenario(n1=1)
async def test_a_vgpu_that_the_author_named_outlives_the_choice_of_the_node(world: World) -> None:
    ask = await chosen_again(world, "b", id="x")
    assert (ask["idGiven"], ask["nodeGiven"]) == (True, False)


def created_vgpus(world: World) -> list[str]:
    """The names of the vGPUs of requests, in order."""
    asked = [each for each in world.server.requests if (each.verb, each.resource) == CREATE_VGPU]
    return [each.body["metadata"]["name"] for each in asked]


@scenario(n1=1)
async def test_two_that_name_the_same_new_gpu_at_once_are_decided_one_after_the_other(
    world: World,
) -> None:
    for name in ("a", "b"):
        world.share(name, "0.6", id="x", spec={"nodeName": "n1"})
    world.start("devices")
    [running] = await expect_any_running(world, "a", "b")
    assert created_vgpus(world) == ["x"]
    assert world.vgpus() == {"x": [running]}


@scenario(n1=1)
async def test_a_vgpu_whose_creation_was_not_answered_counts_for_the_next_reservation(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.server.inject(Fault.reset(after=True), verb="create", resource="vgpus")
    world.share("a", "0.6", id="x", spec={"nodeName": "n1"})
    world.share("b", "0.6", id="y", spec={"nodeName": "n1"})
    world.start("devices")
    await expect_condition(world, "b", "Allocated", "NoRoom")
    await expect_running(world, "a")
    assert created_vgpus(world) == ["x"]
