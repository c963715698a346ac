"""A gang that does not start in time gives all its shares back."""

import pytest

from expectations import (
    expect_cleaned_up,
    expect_event,
    expect_no_pod,
    expect_no_vgpus,
    expect_pending,
    expect_running,
    expect_scheduled,
)
from fakes.cluster import World, scenario
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.simulator.control import Fault

pytestmark = pytest.mark.slow


def gang(world: World, *names: str) -> None:
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": str(len(names))}
    for name in names:
        world.share(name, "1", labels=labels)


def timeouts(world: World, name: str) -> list[str]:
    return [event for event in world.events(name) if event.startswith("GangTimedOut")]


@scenario(n1=1, n2=1)
async def test_a_gang_of_which_one_cannot_start_gives_everything_back(world: World) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.actors.full.add("n2")
    world.start()
    gang(world, "a", "b")
    await expect_event(world, "a", "GangTimedOut", seconds=120)
    words = "1 of the 2 members that gang g needs have started within 60 s: all give back"
    assert words in timeouts(world, "a")[0]
    await expect_cleaned_up(world)
    assert [world.pod(name) for name in "ab"] == [None, None]
    for name in "ab":
        await expect_pending(world, name, "of the 2 members", reason="GangNoRoom")
    world.actors.full.clear()
    await expect_running(world, "a", "b", seconds=900)


@scenario(n1=1, n2=1)
async def test_less_time_counts_for_a_gang_that_is_starting_already(world: World) -> None:
    world.configure(gangTimeoutSeconds=3600)
    world.actors.full.add("n2")
    world.start()
    gang(world, "a", "b")
    await world.quiet(120)
    assert not timeouts(world, "a")
    world.configure(gangTimeoutSeconds=60)
    await expect_event(world, "a", "GangTimedOut", seconds=10)


@scenario(n1=2)
async def test_what_is_given_back_is_free_for_others(world: World) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.actors.binds = False
    world.start()
    gang(world, "a", "b")
    await expect_scheduled(world, "a")
    world.actors.binds = True
    world.actors.full.add("n1")
    world.native_pod("whole")
    await expect_pending(world, "a", seconds=200)
    await expect_running(world, "whole", seconds=120)


@scenario(n1=2)
async def test_a_gang_that_has_started_is_left_in_peace_when_it_loses_a_member(
    world: World,
) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.start()
    gang(world, "a", "b")
    await expect_running(world, "a", "b")
    await world.quiet(150)
    world.delete("b")
    await world.kill("devices")
    world.start("devices")
    await world.quiet(200)
    assert world.running("a")
    assert not timeouts(world, "a")


@scenario(n1=2)
async def test_what_a_restart_left_of_an_undone_member_is_cleared_away(world: World) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.start()
    gang(world, "a", "b")
    await expect_running(world, "a", "b")
    await world.kill("devices", "scheduler")

    def undecided(sharepod: dict[str, dict[str, object]]) -> None:
        del sharepod["spec"]["nodeName"]
        sharepod["spec"]["gpu"] = {"request": "1", "memory": "1Gi", "attempt": 1}

    for name in "ab":
        world.server.change(SHAREPODS, name, "default", undecided)
    world.start("devices")
    await expect_no_pod(world, "a", "b")
    await expect_no_vgpus(world)
    world.start("scheduler")
    await expect_running(world, "a", "b")


@scenario(n1=1, n2=1)
async def test_a_budget_is_waited_for(world: World) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.actors.full.add("n2")
    world.start()
    gang(world, "a", "b")
    world.server.inject(
        Fault.answer(429, "TooManyRequests"), verb="create", resource="pods/eviction", times=3
    )
    await expect_event(world, "a", "GangTimedOut", seconds=120)
    await expect_no_pod(world, "a", seconds=120)
    asked = [each for each in world.server.requests if each.resource == "pods/eviction"]
    assert len(asked) == 4
