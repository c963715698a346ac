"""A decision that cannot be written, or is no longer right, leaves no holder behind."""

from fakes.cluster import World, expect_pending, expect_scheduled, story
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.simulator.control import Fault

INVALID = Fault.answer(400, "BadRequest")


def requested(world: World) -> list[str]:
    """What is requested of each vGPU."""
    return [world.vgpu(gpuid)["status"]["summary"]["requested"] for gpuid in world.vgpus()]


@story(n1=1)
async def test_a_sharepod_that_is_refused_gives_its_share_back(world: World) -> None:
    world.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    world.share("a", "0.7")
    world.start("scheduler")
    await world.until(lambda: world.condition("a", "Scheduled"))
    assert world.condition("a", "Scheduled")["reason"] == "Invalid"
    assert list(world.vgpus().values()) == [[]]
    world.share("b", "0.7")
    await world.until(lambda: world.condition("b", "Scheduled"))
    expect_scheduled(world, "b")


@story(n1=2)
async def test_all_shares_of_a_refused_sharepod_are_given_back(world: World) -> None:
    world.server.inject(INVALID, verb="patch", resource="sharepods", name="a", times=100)
    world.share("a", "0.7", count=2)
    world.start("scheduler")
    await world.until(lambda: world.condition("a", "Scheduled"))
    assert list(world.vgpus().values()) == [[], []]
    assert requested(world) == ["0", "0"]


@story(n1=1)
async def test_a_limit_that_changes_before_the_decision_is_written_is_stored(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="patch", resource="sharepods")
    world.share("a", "0.3", limit="0.6")
    world.start("scheduler")
    await world.until(lambda: list(world.vgpus().values()) == [["a"]])
    await world.kill("scheduler")
    world.server.change(
        SHAREPODS, "a", "default", lambda raw: raw["spec"]["gpu"].update(limit="0.4")
    )
    world.start("scheduler")
    await world.until(lambda: world.condition("a", "Scheduled"))
    placed = expect_scheduled(world, "a")
    [holder] = world.vgpu(placed.gpuid)["status"]["holders"]
    assert holder["limitMicros"] == 400_000


@story(n1=1)
async def test_a_demand_that_does_not_fit_stores_nothing(world: World) -> None:
    world.share("a", "0.7")
    world.share("b", "0.7")
    world.start("scheduler")
    await world.until(lambda: world.condition("b", "Scheduled"))
    expect_pending(world, "b")
    assert list(world.vgpus().values()) == [["a"]]
