"""A decision that cannot be written, or is no longer right, leaves no holder behind."""

from expectations import expect_condition, expect_holders, expect_pending, expect_scheduled
from fakes.cluster import World, scenario
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.simulator.control import Fault

INVALID = Fault.answer(400, "BadRequest")


@scenario(n1=1)
async def test_a_sharepod_that_is_refused_gives_its_share_back(world: World) -> None:
    world.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    world.share("a", "0.7")
    world.start("scheduler")
    await expect_condition(world, "a", CONDITION_SCHEDULED, "Invalid", status="False")
    await expect_holders(world, [])
    world.share("b", "0.7")
    await expect_scheduled(world, "b")


@scenario(n1=2)
async def test_all_shares_of_a_refused_sharepod_are_given_back(world: World) -> None:
    world.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    world.share("a", "0.7", count=2)
    world.start("scheduler")
    await expect_condition(world, "a", CONDITION_SCHEDULED, "Invalid", status="False")
    await expect_holders(world, [], [])
    for gpuid in world.vgpus():
        assert world.vgpu(gpuid)["status"]["summary"]["requested"] == "0"


@scenario(n1=1)
async def test_a_limit_that_changes_before_the_decision_is_written_is_stored(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="patch", resource="sharepods")
    world.share("a", "0.3", limit="0.6")
    world.start("scheduler")
    await expect_holders(world, ["a"])
    await world.kill("scheduler")
    world.server.change(
        SHAREPODS, "a", "default", lambda raw: raw["spec"]["gpu"].update(limit="0.4")
    )
    world.start("scheduler")
    placed = await expect_scheduled(world, "a")
    [holder] = world.vgpu(placed.gpuid)["status"]["holders"]
    assert holder["limitMicros"] == 400_000


@scenario(n1=1)
async def test_a_demand_that_does_not_fit_stores_nothing(world: World) -> None:
    world.share("a", "0.7")
    world.share("b", "0.7")
    world.start("scheduler")
    await expect_pending(world, "b")
    await expect_holders(world, ["a"])
