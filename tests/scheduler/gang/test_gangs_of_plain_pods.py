"""Gangs of plain pods: no gate is removed before all members can start."""

from functools import partial
from typing import Any

from expectations import expect_activated, expect_pending, expect_running
from fakes.cluster import World, scenario
from fakes.cluster.state import gates, holding
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import Fault
from scheduler.gang.test_gangs import labels

Raw = dict[str, Any]


def needing(cpu: str) -> Raw:
    resources = {"limits": {VGPU_RESOURCE: "1"}, "requests": {"cpu": cpu}}
    return {"containers": [{"name": "main", "image": "train:1", "resources": resources}]}


async def two_that_need_three_of_four_cores(world: World, *nodes: str) -> None:
    """With active vGPUs, so that gates are removed without a wait."""
    for node in nodes:
        cores = {"cpu": "4"}
        world.server.change(NODES, node, "", partial(_allocate, cores))
    world.reserve("n1", "x", "y")
    world.start("devices")
    await expect_activated(world)
    for name in "ab":
        world.plain(name, "0.6", labels=labels(2), spec=needing("3"))
    world.start("scheduler")


def _allocate(amounts: Raw, node: Raw) -> None:
    node["status"]["allocatable"].update(amounts)


@scenario(n1=2, n2=2)
async def test_plain_pods_that_start_together_have_room_beside_each_other(world: World) -> None:
    await two_that_need_three_of_four_cores(world, "n1", "n2")
    await expect_running(world, "a", "b")
    pods = [world.pod(name) or {} for name in "ab"]
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]


@scenario(n1=2)
async def test_none_is_let_go_where_there_is_room_for_one_only(world: World) -> None:
    await two_that_need_three_of_four_cores(world, "n1")
    await expect_pending(world, "b", reason="GangNoRoom")
    words = world.pod_condition("a")["message"]
    assert words.startswith("gang g: room for 1 of the 2 members that it needs; n1: cpu ")
    writes = world.server.writes
    await world.quiet(30)
    assert world.server.writes == writes
    assert not holding(world)
    assert gates(world, "a")
    assert gates(world, "b")
    world.server.change(NODES, "n1", "", partial(_allocate, {"cpu": "8"}))
    await expect_running(world, "a", "b")


@scenario(n1=2)
async def test_one_that_cannot_be_told_keeps_its_mates_from_going_alone(world: World) -> None:
    world.reserve("n1", "x", "y")
    world.start()
    await expect_activated(world)
    # The member that is written first always conflicts.
    conflict = Fault.answer(409, "Conflict")
    world.server.inject(conflict, verb="patch", resource="pods", name="a", times=20)
    world.plain("a", "0.6", labels=labels(2))
    world.plain("b", "0.6", labels=labels(2))
    await expect_running(world, "a", "b")
    told = [
        each.path.name
        for each in world.server.requests
        if (each.verb, each.resource) == ("patch", "pods") and each.path.name in {"a", "b"}
    ]
    assert told == ["a"] * 21 + ["b"]
