"""KubeShare-Sched against an API server in memory."""

from cluster_fake import World, expect_scheduled, in_world
from kubeshare.api.v1 import VGPUS


def test_a_sharepod_on_an_empty_node_gets_a_new_vgpu() -> None:
    async def story(world: World) -> None:
        world.share("a")
        world.start("scheduler")
        await world.until(lambda: world.condition("a", "Scheduled"))
        placed = expect_scheduled(world, "a").on_node("n1")
        vgpu = world.server.stored(VGPUS, placed.gpuid)
        assert vgpu is not None
        assert vgpu["spec"]["memoryBytes"] == 16 << 30
        assert world.condition("a", "Scheduled")["reason"] == "Bound"

    in_world(story, n1=1)


def test_a_burst_of_two_that_do_not_fit_together_never_shares_a_gpu() -> None:
    async def story(world: World) -> None:
        world.start("scheduler")
        await world.quiet(1)
        world.share("a", "0.6")
        world.share("b", "0.6")
        await world.until(lambda: world.condition("a", "Scheduled"))
        await world.until(lambda: world.condition("b", "Scheduled"))
        assert expect_scheduled(world, "a").gpuid != expect_scheduled(world, "b").gpuid
        refused = [each for each in world.server.requests if each.verb == "get"]
        assert not refused, "it decided from an old state and had to read again"

    in_world(story, n1=2)
