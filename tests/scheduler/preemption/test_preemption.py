"""Preemptible pods are evicted for demands of higher priority."""

from typing import Any

import pytest

from expectations import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_evictions,
    expect_pending,
    expect_running,
    expect_scheduled,
)
from fakes.cluster import World, scenario
from kubeshare.scheduler.preemption.nominations import NOMINATION_SECONDS
from kubeshare.simulator.control import Fault

MARKED = {"kubeshare.nthu/preemptible": "true"}


def high(value: int = 5) -> dict[str, str]:
    return {"sharedgpu/priority": str(value)}


def evicted(world: World) -> list[str]:
    """The pods that were asked to leave, in that order."""
    return [
        each.path.name
        for each in world.server.requests
        if each.resource == "pods/eviction" and not each.body["deleteOptions"].get("dryRun")
    ]


async def low_ones(world: World, **requests: str) -> None:
    world.configure(preemption=True)
    world.start()
    for name, request in requests.items():
        await world.run(name, request, annotations=MARKED)


@scenario(n1=1)
async def test_the_marked_one_leaves_and_both_sides_are_told_why(world: World) -> None:
    await low_ones(world, low="0.7")
    gpuid = assert_scheduled(world, "low").gpuid
    world.share("high", "0.7", labels=high())
    await expect_running(world, "high")
    assert evicted(world) == ["low"]
    await expect_pending(world, "low")
    [preempting] = [event for event in world.events("high") if event.startswith("Preempting")]
    assert f"up to 0: low leaves n1/{gpuid}. It is bound when" in preempting
    [preempted] = [event for event in world.events("low") if event.startswith("Preempted")]
    assert "make room for SharePod default/high of priority 5: it is preemptible" in preempted


@scenario(n1=1)
async def test_nobody_is_preempted_where_the_configuration_does_not_say_so(world: World) -> None:
    world.start()
    await world.run("low", "0.7", annotations=MARKED)
    world.share("high", "0.7", labels=high())
    await expect_decided(world, "high")
    await world.quiet(30)
    assert evicted(world) == []
    world.configure(preemption=True)
    await expect_running(world, "high")


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
    async def play(world: World) -> None:
        world.configure(preemption=True)
        world.start()
        await world.run("low", "0.7", **low)
        world.share("high", "0.7", labels=high(5))
        await expect_decided(world, "high")
        await world.quiet(30)
        assert_pending(world, "high")
        assert evicted(world) == []

    play()


@scenario(n1=2)
async def test_a_budget_that_refuses_has_another_one_leave(world: World) -> None:
    await low_ones(world, a="0.6", b="0.7")
    # Evicting the smaller one would cost less.
    fault = Fault.answer(429, "TooManyRequests")
    world.server.inject(fault, verb="create", resource="pods/eviction", name="a", times=100)
    world.share("high", "0.8", labels=high())
    await expect_running(world, "high")
    assert evicted(world) == ["b"]
    assert world.running("a")


@scenario(n1=1)
async def test_where_all_budgets_refuse_it_waits_and_asks_again(world: World) -> None:
    await low_ones(world, low="0.7")
    fault = Fault.answer(429, "TooManyRequests")
    world.server.inject(fault, verb="create", resource="pods/eviction", times=3)
    world.share("high", "0.7", labels=high())
    await expect_running(world, "high")
    asked = [each for each in world.server.requests if each.resource == "pods/eviction"]
    assert len(asked) == 5
    assert evicted(world) == ["low"]
    assert asked[-1].at - asked[0].at > 15


@scenario(n1=1)
async def test_who_could_not_be_asked_to_leave_is_asked_again_at_once(world: World) -> None:
    await low_ones(world, low="0.7")
    # The dry run goes well, and then the API server fails.
    fault = Fault.answer(500, "InternalError")
    world.server.inject(fault, verb="create", resource="pods/eviction", skip=1)
    world.share("high", "0.7", labels=high())
    await expect_running(world, "high", seconds=5)
    assert evicted(world) == ["low", "low"]
    told = [event for event in world.events("high") if event.startswith("Preempting")]
    assert len(told) == 1


@scenario(n1=2)
async def test_a_budget_that_changes_between_two_evictions_is_asked_again(world: World) -> None:
    await low_ones(world, a="0.9", b="0.9")
    fault = Fault.answer(429, "TooManyRequests")
    world.server.inject(fault, verb="create", resource="pods/eviction", skip=3)
    world.share("high", "0.9", count=2, labels=high())
    await expect_running(world, "high", seconds=60)
    first, *others = evicted(world)
    assert len(others) == 2
    assert {*others} == {"a", "b"} - {first}


@scenario(n1=1)
async def test_nobody_leaves_in_vain(world: World) -> None:
    world.configure(preemption=True)
    world.start()
    await world.run("fixed", "0.5")
    await world.run("low", "0.4", annotations=MARKED)
    world.share("high", "0.6", labels=high())
    await expect_decided(world, "high")
    await world.quiet(30)
    assert evicted(world) == []


@scenario(n1=1)
async def test_the_place_is_kept_from_those_of_lower_priority_until_it_is_free(
    world: World,
) -> None:
    await low_ones(world, a="0.4", b="0.4")
    world.actors.node_agents = False  # no share is released
    world.share("high", "0.9", labels=high())
    await expect_evictions(world, "a", "b")
    world.share("small", "0.1")
    await expect_pending(world, "small", "kept for SharePod default/high of priority 5")
    world.actors.node_agents = True
    await expect_running(world, "high")
    assert sorted(evicted(world)) == ["a", "b"]
    await expect_running(world, "small")


@pytest.mark.slow
@scenario(n1=1)
async def test_a_place_is_not_kept_for_ever(world: World) -> None:
    await low_ones(world, a="0.8")
    world.actors.node_agents = False
    world.share("high", "0.9", labels=high())
    await expect_evictions(world, "a")
    world.share("small", "0.1")
    await expect_pending(world, "small")
    await expect_scheduled(world, "small", seconds=NOMINATION_SECONDS + 60)


@scenario(n1=2)
async def test_a_gang_preempts_as_many_as_it_needs_and_no_more(world: World) -> None:
    await low_ones(world, a="1", b="0.9")
    said = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"} | high()
    for name in ("x", "y"):
        world.share(name, "0.5", labels=said)
    await expect_running(world, "x", "y")
    assert evicted(world) == ["b"]
    assert world.shares_gpu("x", "y")
    assert any("gang g of namespace default" in event for event in world.events("b"))


@scenario(n1=1)
async def test_the_one_of_the_lowest_priority_leaves(world: World) -> None:
    world.configure(preemption=True)
    world.start()
    await world.run("mid", "0.4", annotations=MARKED, labels=high(1))
    await world.run("low", "0.5", annotations=MARKED, labels=high(-1))
    world.share("high", "0.4", labels=high())
    await expect_running(world, "high")
    assert evicted(world) == ["low"]
