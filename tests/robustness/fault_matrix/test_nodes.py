"""Deleted pods whose containers still run, and unreachable nodes."""

import pytest

from expectations import expect_no_vgpus, expect_running
from fakes.cluster import World, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault

LONG = 600.0
"""Virtual time longer than any time-out of a node."""


@scenario(n1=1, agents=True)
async def test_the_part_of_a_force_deleted_pod_is_its_own_until_its_containers_stop(
    world: World,
) -> None:
    machine = world.machines["n1"]
    machine.forced = LONG
    world.start()
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.delete("a")
    world.server.remove(PODS, "a", "default")
    world.share("b", "0.7")
    await world.quiet(LONG / 2)
    assert machine.containers
    assert world.shares_gpu("a")
    assert not world.running("b")
    await expect_running(world, "b", seconds=LONG)
    assert world.shares_gpu("b")


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_force_deleted_pod_is_made_again_when_its_containers_have_stopped(
    world: World,
) -> None:
    world.machines["n1"].forced = LONG
    world.start()
    await world.run("a")
    world.server.remove(PODS, "a", "default")
    await world.quiet(LONG / 2)
    assert world.pod("a") is None
    assert world.condition("a", "Allocated")["reason"] == "Releasing"
    await expect_running(world, "a", seconds=LONG)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_part_comes_back_when_the_kubelet_has_forgotten_a_pod_that_is_gone(
    world: World,
) -> None:
    """The kubelet has lost its records, so it never unprepares that pod."""
    world.start()
    await world.run("a")
    world.delete("a")
    world.server.remove(PODS, "a", "default")
    world.machines["n1"].forget()
    await world.quiet(100)
    assert world.shares_gpu("a")
    await expect_no_vgpus(world, seconds=LONG)
    assert not world.machines["n1"].left()


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_on_a_node_that_is_cut_off_containers_go_on_and_the_release_comes_later(
    world: World,
) -> None:
    world.start()
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.cut_off("agent/n1")
    await world.quiet(LONG)
    assert world.machines["n1"].containers
    world.delete("a")
    world.share("b", "0.7")
    await world.until(lambda: not world.machines["n1"].containers)
    await world.quiet(LONG)
    assert world.shares_gpu("a"), "nobody but the node says that a part is free"
    assert not world.running("b")
    world.reconnect("agent/n1")
    await expect_running(world, "b", seconds=LONG)
    assert not world.server.stored(SHAREPODS, "a", "default")


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_the_pod_of_a_sharepod_deleted_alone_keeps_its_part_until_it_ends(
    world: World,
) -> None:
    """``kubectl delete shp a --cascade=orphan``"""
    world.start()
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.server.change(PODS, "a", "default", lambda pod: pod["metadata"].pop("ownerReferences"))
    world.delete("a")
    world.share("b", "0.7")
    await world.quiet(LONG)
    assert world.running("a")
    assert world.shares_gpu("a")
    world.end("a")
    await expect_running(world, "b", seconds=LONG)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_namespace_that_goes_takes_all_with_it_in_any_order(world: World) -> None:
    """Pods may be deleted before their SharePods, and none can be created."""
    world.start()
    await world.run("a")
    await world.run("b")
    forbidden = Fault.answer(403, "Forbidden")
    world.server.inject(forbidden, verb="create", resource="pods", name="", times=9999)
    for name in ("a", "b"):
        pod = the_pod(world, name)
        world.actors.delete(pod)
    await world.quiet(60)
    assert not world.pod("a")
    for name in ("a", "b"):
        world.delete(name)
    await expect_no_vgpus(world, seconds=LONG)
    assert not world.placeholders()
    assert not world.machines["n1"].left()
