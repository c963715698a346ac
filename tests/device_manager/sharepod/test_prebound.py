"""A pod is bound while its vGPU is being activated; it never runs without a GPU."""

from expectations import (
    assert_scheduled,
    expect_condition,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import VGPUS


def uuids(world: World) -> list[str]:
    return [vgpu["spec"].get("uuid", "") for vgpu in world.server.all(VGPUS)]


@scenario(n1=1)
async def test_the_pod_is_made_once_the_placeholder_is_bound_and_named_once_the_gpu_is_known(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    await world.quiet()
    assert uuids(world) == [""]
    pod = the_pod(world, "a")
    assert pod["spec"]["nodeName"] == "n1"
    assert world.pod_uids() == {"a": ""}, "nothing of it can have run"
    assert not world.running("a")
    assert world.condition("a", "Allocated")["reason"] == "Creating"
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_ready(world, "a")
    assert world.pod_uids() == {"a": pod["metadata"]["uid"]}


@scenario(n1=1)
async def test_no_pod_is_made_while_kube_scheduler_has_not_bound_the_placeholder(
    world: World,
) -> None:
    world.start("scheduler")
    world.share("a")
    await expect_vgpus(world, 1)
    world.native_pod("whole")
    await expect_running(world, "whole")
    world.start("devices")
    await expect_condition(world, "a", "Allocated", "GPUNotFree")
    assert world.pod("a") is None


@scenario(n1=1, n2=1)
async def test_a_pod_whose_gpu_cannot_be_shared_is_taken_back_and_runs_elsewhere(
    world: World,
) -> None:
    world.actors.sliced.add("n1")
    world.start()
    world.share("a")
    await expect_ready(world, "a", seconds=90)
    assert_scheduled(world, "a", node="n2")
    await expect_vgpus(world, 1, placeholders=1)


@scenario(n1=1)
async def test_where_there_is_no_other_gpu_it_waits_without_a_pod_and_says_why(
    world: World,
) -> None:
    world.actors.sliced.add("n1")
    world.start()
    world.share("a")
    await expect_condition(world, "a", "Allocated", "NotShareable")
    await expect_no_pod(world, "a")
    assert set(world.pod_uids().values()) <= {""}
