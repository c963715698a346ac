"""Retries the start of pods that their node has refused."""

from expectations import expect_pod
from fakes.cluster import World, scenario
from fakes.cluster.state import the_pod
from kubeshare.device_manager.sharepod.start_retry import MAX_RETRIES
from kubeshare.kube.resources import PODS

NUDGED = "kubeshare.nthu/nudged"


def touches(world: World) -> list[str]:
    patches = [each for each in world.server.requests if each.verb == "patch"]
    return [
        each.body["metadata"]["annotations"][NUDGED] for each in patches if each.resource == "pods"
    ]


@scenario(n1=1)
async def test_a_pod_that_does_not_begin_is_touched_a_few_times_with_growing_pauses(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    world.actors.node_agents = False
    world.share("b")
    await world.until(lambda: world.pod_uids().get("b"))
    await world.quiet(5)
    assert touches(world) == []
    await world.until(lambda: len(touches(world)) == 2)
    await world.quiet(3600)
    assert len(touches(world)) == MAX_RETRIES
    pod = the_pod(world, "b")
    assert pod["metadata"]["annotations"][NUDGED] == touches(world)[-1]


@scenario(n1=1)
async def test_a_pod_that_begins_in_time_is_not_touched(world: World) -> None:
    world.start()
    await world.run("a")
    await world.quiet(600)
    assert touches(world) == []


@scenario(n1=1)
async def test_a_pod_whose_images_take_long_is_not_touched(world: World) -> None:
    world.start()
    await world.run("a")
    world.actors.node_agents = False
    world.share("b")
    await expect_pod(world, "b")
    begun = {"type": "PodReadyToStartContainers", "status": "True"}
    bound = {"type": "PodScheduled", "status": "True"}
    world.server.change(
        PODS, "b", "default", lambda pod: pod["status"].update(conditions=[bound, begun])
    )
    await world.quiet(600)
    assert touches(world) == []
