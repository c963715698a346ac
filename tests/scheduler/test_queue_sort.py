"""Demands of higher priority are scheduled first."""

from expectations import assert_pending, assert_scheduled, expect_decided, expect_scheduled
from fakes.cluster import World, scenario
from kubeshare.api.types.v1 import VGPUS


def priority(value: int) -> dict[str, str]:
    return {"sharedgpu/priority": str(value)}


def scheduled(world: World, name: str) -> bool:
    return bool(world.condition(name, "Scheduled").get("status") == "True")


@scenario(n1=1)
async def test_of_those_that_are_there_the_highest_priority_is_first(world: World) -> None:
    for name, value in (("low", -1), ("mid", 0), ("high", 100)):
        world.share(name, "0.6", labels=priority(value))
    world.start("scheduler")
    await expect_decided(world, "low", "mid")
    assert_scheduled(world, "high")
    assert_pending(world, "mid")
    assert_pending(world, "low")


@scenario(n1=1)
async def test_of_those_that_wait_the_highest_priority_gets_what_is_freed(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7")
    await expect_scheduled(world, "a")
    for name, value in (("old", 0), ("low", -1), ("high", 1)):
        world.share(name, "0.6", labels=priority(value))
        await expect_decided(world, name)
    gpuid = assert_scheduled(world, "a").gpuid
    for name in ("high", "old", "low"):
        world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[]))
        await expect_scheduled(world, name)
        assert world.vgpus() == {gpuid: [name]}


@scenario(n1=1)
async def test_who_does_not_fit_does_not_keep_others_out(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7")
    await expect_scheduled(world, "a")
    world.share("large", "0.6", labels=priority(100))
    world.share("small", "0.3", labels=priority(-1))
    await expect_scheduled(world, "small")
    assert_pending(world, "large")
