"""Pods for which no node has a GPU are shown to cluster autoscalers."""

import pytest

from expectations import expect_any_running, expect_decided, expect_event, expect_running
from fakes.cluster import World, scenario
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.device_manager.autoscaling.placeholder_pods import PENDING_SECONDS
from kubeshare.kube.resources import PODS, Raw


def scale_up_pods(world: World) -> list[Raw]:
    """The pods that ask a cluster autoscaler for another node."""
    pods = world.server.all(PODS, NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["labels"]["kubeshare.nthu/role"] == "missing"]


async def expect_scale_up_pods(world: World, count: int) -> list[Raw]:
    await world.until(lambda: len(scale_up_pods(world)) == count)
    return scale_up_pods(world)


async def full(world: World, most: int) -> None:
    """One SharePod has the only GPU."""
    world.configure(autoscaler={"placeholders": most})
    world.start()
    await world.run("whole", "1")


@scenario(n1=1)
async def test_a_pod_asks_for_a_node_and_goes_when_there_is_one(world: World) -> None:
    await full(world, 2)
    world.share("a", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    (pod,) = await expect_scale_up_pods(world, 1)
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n2"}
    assert pod["spec"]["priorityClassName"] == "kubeshare-missing"
    await expect_event(world, "a", "GPUMissing")
    world.add_node("n2", 1)
    await expect_running(world, "a")
    await expect_scale_up_pods(world, 0)


@scenario(n1=1)
async def test_it_goes_when_the_sharepod_waits_no_more(world: World) -> None:
    await full(world, 2)
    world.share("a")
    await expect_scale_up_pods(world, 1)
    world.delete("whole")
    await expect_running(world, "a")
    await expect_scale_up_pods(world, 0)
    world.share("b", "1")
    await expect_scale_up_pods(world, 1)
    world.delete("b")
    await expect_scale_up_pods(world, 0)


@scenario(n1=1)
async def test_there_are_never_more_than_configured_and_none_without(world: World) -> None:
    await full(world, 2)
    for name in "abcd":
        world.share(name, "1")
    await expect_scale_up_pods(world, 2)
    await world.quiet(20)
    assert len(scale_up_pods(world)) == 2
    world.configure()
    await expect_scale_up_pods(world, 0)
    await world.quiet(20)
    assert not scale_up_pods(world)


@scenario(n1=1)
async def test_a_sharepod_that_a_new_node_would_not_help_asks_for_none(world: World) -> None:
    await full(world, 4)
    world.share("beside", affinity="red")
    world.share("second", "1", affinity="red")
    world.delete("whole")
    await expect_any_running(world, "beside", "second")
    await world.quiet(PENDING_SECONDS * 4)
    assert not scale_up_pods(world)


@scenario(n1=1)
async def test_none_is_made_for_who_waits_a_moment_only(world: World) -> None:
    await full(world, 2)
    world.share("a")
    await expect_decided(world, "a")
    await world.quiet(PENDING_SECONDS / 2)
    assert not scale_up_pods(world)


@scenario(n1=1)
async def test_a_plain_pod_is_shown_as_a_sharepod_is(world: World) -> None:
    await full(world, 2)
    world.plain("a", spec={"tolerations": [{"operator": "Exists"}]})
    (pod,) = await expect_scale_up_pods(world, 1)
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    await expect_event(world, "a", "GPUMissing")
    world.add_node("n2", 1)
    await expect_running(world, "a")
    await expect_scale_up_pods(world, 0)
    world.plain("b", "1")
    await expect_scale_up_pods(world, 1)
    world.server.remove(PODS, "b", "default")
    await expect_scale_up_pods(world, 0)


@pytest.mark.slow
@scenario(n1=2)
async def test_of_a_gang_those_are_shown_for_which_there_is_no_room(world: World) -> None:
    await full(world, 4)
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "3"}
    for name in ("a", "b"):
        world.share(name, "1", labels=labels)
    for name in ("c", "d"):
        world.plain(name, "1", labels=labels)
    await world.until(lambda: scale_up_pods(world))
    await world.quiet(PENDING_SECONDS * 2)
    assert len(scale_up_pods(world)) == 2, "of three that it needs there is room for one"
    world.add_node("n2", 2)
    await world.until(lambda: sum(map(world.running, "abcd")) == 3)
    await expect_scale_up_pods(world, 1)
