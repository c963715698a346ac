"""What no node has a GPU for is shown to cluster autoscalers, boundedly, while it is needed."""

import pytest

from fakes.cluster import World, story
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.device_manager.autoscaling.placeholder_pods import PENDING_SECONDS
from kubeshare.kube.resources import PODS, Raw


def shown(world: World) -> list[Raw]:
    pods = world.server.all(PODS, NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["labels"]["kubeshare.nthu/role"] == "missing"]


async def full(world: World, most: int) -> None:
    """The only GPU is somebody's."""
    world.configure(autoscaler={"placeholders": most})
    world.start()
    await world.run("whole", "1")


@story(n1=1)
async def test_a_pod_asks_for_a_node_and_goes_when_there_is_one(world: World) -> None:
    await full(world, 2)
    world.share("a", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    await world.until(lambda: shown(world))
    (pod,) = shown(world)
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n2"}
    assert pod["spec"]["priorityClassName"] == "kubeshare-missing"
    await world.until(lambda: any("GPUMissing" in each for each in world.events("a")))
    world.add_node("n2", 1)
    await world.until(lambda: world.running("a") and not shown(world))


@story(n1=1)
async def test_it_goes_when_the_sharepod_waits_no_more(world: World) -> None:
    await full(world, 2)
    world.share("a")
    await world.until(lambda: shown(world))
    world.delete("whole")
    await world.until(lambda: world.running("a") and not shown(world))
    world.share("b", "1")
    await world.until(lambda: shown(world))
    world.delete("b")
    await world.until(lambda: not shown(world))


@story(n1=1)
async def test_there_are_never_more_than_configured_and_none_without(world: World) -> None:
    await full(world, 2)
    for name in "abcd":
        world.share(name, "1")
    await world.until(lambda: len(shown(world)) == 2)
    await world.quiet(20)
    assert len(shown(world)) == 2
    world.configure()
    await world.until(lambda: not shown(world))
    await world.quiet(20)
    assert not shown(world)


@story(n1=1)
async def test_a_sharepod_that_a_new_node_would_not_help_asks_for_none(world: World) -> None:
    await full(world, 4)
    world.share("beside", affinity="red")
    world.share("second", "1", affinity="red")
    world.delete("whole")
    await world.until(lambda: world.running("beside") or world.running("second"))
    await world.quiet(PENDING_SECONDS * 4)
    assert not shown(world)


@story(n1=1)
async def test_none_is_made_for_who_waits_a_moment_only(world: World) -> None:
    await full(world, 2)
    world.share("a")
    await world.until(lambda: world.condition("a", "Scheduled"))
    await world.quiet(PENDING_SECONDS / 2)
    assert not shown(world)


@story(n1=1)
async def test_a_plain_pod_is_shown_as_a_sharepod_is(world: World) -> None:
    await full(world, 2)
    world.plain("a", spec={"tolerations": [{"operator": "Exists"}]})
    await world.until(lambda: shown(world))
    (pod,) = shown(world)
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    await world.until(lambda: any("GPUMissing" in each for each in world.events("a")))
    world.add_node("n2", 1)
    await world.until(lambda: world.running("a") and not shown(world))
    world.plain("b", "1")
    await world.until(lambda: shown(world))
    world.server.remove(PODS, "b", "default")
    await world.until(lambda: not shown(world))


@pytest.mark.slow
@story(n1=2)
async def test_of_a_gang_those_are_shown_for_which_there_is_no_room(world: World) -> None:
    await full(world, 4)
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "3"}
    for name in ("a", "b"):
        world.share(name, "1", labels=labels)
    for name in ("c", "d"):
        world.plain(name, "1", labels=labels)
    await world.until(lambda: shown(world))
    await world.quiet(PENDING_SECONDS * 2)
    assert len(shown(world)) == 2, "of three that it needs there is room for one"
    world.add_node("n2", 2)
    await world.until(lambda: len([name for name in "abcd" if world.running(name)]) == 3)
    await world.until(lambda: len(shown(world)) == 1)
