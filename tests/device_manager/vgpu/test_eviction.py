"""Nodes that are cordoned, drained or emptied for a driver upgrade."""

from typing import Any

import pytest

from expectations import (
    assert_scheduled,
    expect_activated,
    expect_bound,
    expect_cleaned_up,
    expect_on_node,
    expect_pending,
    expect_running,
    expect_vgpu_deleted,
    expect_vgpus,
)
from fakes.cluster import World, scenario, seed_held
from fakes.cluster.state import evicted, the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS, Raw

SYSTEM = "kubeshare-system"


def label(world: World, state: str) -> None:
    """Sets the driver upgrade state of n1 as NVIDIA's GPU operator does."""
    labels = {"nvidia.com/gpu-driver-upgrade-state": state}
    world.server.change(NODES, "n1", "", lambda node: node["metadata"]["labels"].update(labels))


@pytest.mark.parametrize("state", ["cordon-required", "wait-for-jobs-required", "upgrade-failed"])
def test_a_node_that_waits_for_another_driver_takes_nobody_and_keeps_its_pods(state: str) -> None:
    @scenario(n1=2, n2=2)
    async def run(world: World) -> None:
        world.reserve("n1", "kept")
        world.start()
        await world.run("a", id="mine", spec={"nodeName": "n1"})
        label(world, state)
        await expect_vgpu_deleted(world, "kept")
        await world.run("b")
        assert_scheduled(world, "b", node="n2")
        await world.quiet(60)
        assert world.running("a")

    run()


@scenario(n1=1, n2=1)
async def test_holders_leave_a_node_before_its_driver_is_upgraded_and_the_placeholder_last(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    [placeholder] = world.placeholders()
    kept: list[bool] = []

    def record(*_: Any) -> None:
        if world.server.stored(PODS, "a", "default"):
            kept.append(world.server.stored(PODS, placeholder, SYSTEM) is not None)

    world.server.storage.after_change.append(record)
    label(world, "pod-deletion-required")
    await expect_on_node(world, "a", "n2")
    await expect_running(world, "a")
    assert kept[0]
    await world.until(lambda: placeholder not in world.placeholders())
    label(world, "upgrade-done")
    await world.run("b", "0.9")
    assert_scheduled(world, "b", node="n1")


@scenario(n1=1)
async def test_a_pod_that_has_ended_is_not_evicted(world: World) -> None:
    world.start()
    await world.run("a")
    world.actors.node_agents = False  # its share is not released
    world.end("a")
    label(world, "pod-deletion-required")
    await world.quiet(30)
    assert world.shares_gpu("a")
    assert evicted(world) == []


@scenario(n1=1, n2=1)
async def test_what_is_idle_on_a_cordoned_node_is_given_back(world: World) -> None:
    world.reserve("n1", "kept")
    world.start()
    await expect_activated(world)
    world.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=True))
    await expect_cleaned_up(world)


@scenario(n1=1, n2=1)
async def test_the_pods_of_a_drained_node_run_elsewhere_and_its_gpu_is_given_back(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    node = assert_scheduled(world, "a").node
    world.server.change(NODES, node, "", lambda obj: obj["spec"].update(unschedulable=True))
    pod = the_pod(world, "a")
    world.actors.delete(pod)
    await expect_bound(world, "a", without=node)
    await expect_running(world, "a")
    await expect_vgpus(world, 1, placeholders=1)


@scenario(n1=2)
async def test_a_node_whose_driver_is_being_upgraded_says_so_to_who_waits(world: World) -> None:
    label(world, "cordon-required")
    world.start()
    world.share("a")
    await expect_pending(world, "a", "its GPU driver is being upgraded (cordon-required)")
    label(world, "upgrade-done")
    await expect_running(world, "a")


@scenario(n1=1, n2=1)
async def test_a_namesake_of_the_pod_that_must_leave_is_not_evicted(world: World) -> None:
    world.share("a", id="y", spec={"nodeName": "n2"})
    world.start("devices")
    await expect_running(world, "a")
    world.actors.node_agents = False
    seed_held(world, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = "its former pod"

    world.server.change(VGPUS, "x", "", bind)
    label(world, "pod-deletion-required")
    await world.quiet(30)
    assert world.vgpus() == {"x": ["a"], "y": ["a"]}
    assert evicted(world) == []
