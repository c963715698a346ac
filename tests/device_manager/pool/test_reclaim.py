"""Idle vGPUs are reclaimed for pending pods that request whole GPUs only."""

from expectations import expect_any_running, expect_idle_vgpus, expect_no_vgpus, expect_running
from fakes.cluster import World, scenario
from fakes.cluster.state import vgpu_phases
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS

SECONDS = 5.0
"""Time within which a pod gets the GPU of a reclaimed vGPU."""


def made(world: World) -> int:
    """The number of vGPUs that the programs have created."""
    return sum(
        request.verb == "create" and request.resource == "vgpus"
        for request in world.server.requests
    )


def idle(world: World) -> int:
    return vgpu_phases(world).count("Idle")


async def warmed(world: World, count: int, **pool: object) -> None:
    world.configure(pool={"policy": "reservation", **pool})
    world.start()
    await expect_idle_vgpus(world, count)


@scenario(n1=2)
async def test_a_pod_that_waits_for_a_whole_gpu_gets_that_of_an_idle_vgpu(world: World) -> None:
    await warmed(world, 2, warm=2)
    world.native_pod("native")
    await expect_running(world, "native", seconds=SECONDS)
    assert idle(world) == 1


@scenario(n1=2)
async def test_warm_up_and_yield_do_not_play_ping_pong(world: World) -> None:
    """Each GPU is moved once when a pod is created, and once when it is gone."""
    await warmed(world, 2, warm=2)
    assert made(world) == 2
    world.native_pod("native")
    await expect_running(world, "native", seconds=SECONDS)
    for name in ("second", "third"):
        world.native_pod(name)
    await expect_any_running(world, "second", "third", seconds=SECONDS)
    await world.quiet(40)
    assert made(world) == 2
    world.server.remove(PODS, "third" if world.running("second") else "second", "default")
    world.server.remove(PODS, "native", "default")
    await expect_idle_vgpus(world, 1)
    await world.quiet(40)
    assert made(world) == 3


@scenario(n1=2)
async def test_reserved_ones_give_way_to_no_pod(world: World) -> None:
    await warmed(world, 2, minimum=1, warm=2)
    world.native_pod("native")
    await expect_running(world, "native", seconds=SECONDS)
    world.native_pod("another")
    await world.quiet(40)
    assert not world.running("another")
    assert idle(world) == 1
    assert made(world) == 2


@scenario(n1=1)
async def test_a_vgpu_in_use_gives_way_to_no_pod(world: World) -> None:
    world.configure(pool={"policy": "reservation"})
    world.start()
    await world.run("a")
    world.native_pod("native")
    await world.quiet(40)
    assert world.running("a")
    world.delete("a")
    await expect_running(world, "native", seconds=SECONDS)


@scenario(n1=1, n2=1)
async def test_none_gives_way_to_a_pod_that_could_not_run_on_its_node(world: World) -> None:
    await warmed(world, 2, warm=1)
    world.native_pod("native", nodeSelector={"kubernetes.io/hostname": "n3"})
    await world.quiet(60)
    assert idle(world) == 2
    world.native_pod("picky", nodeSelector={"kubernetes.io/hostname": "n2"})
    await expect_running(world, "picky", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in world.server.all(VGPUS)] == ["n1"]


@scenario(n1=2, n2=1)
async def test_as_many_give_way_as_a_pod_asks_for_and_none_in_vain(world: World) -> None:
    await warmed(world, 3, warm=2)
    world.native_pod("wide", gpus=3)
    await world.quiet(60)
    assert idle(world) == 3
    world.native_pod("two", gpus=2)
    await expect_running(world, "two", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in world.server.all(VGPUS)] == ["n2"]


@scenario(n1=1)
async def test_a_pod_that_goes_before_it_got_the_gpu_lets_it_be_made_warm_again(
    world: World,
) -> None:
    await warmed(world, 1, warm=1)
    world.actors.binds_whole = False
    world.native_pod("native")
    await expect_no_vgpus(world, seconds=SECONDS)
    await world.quiet(60)
    assert not world.vgpus(), "it is kept free for the pod that waits"
    world.actors.binds_whole = True
    world.server.remove(PODS, "native", "default")
    await expect_idle_vgpus(world, 1)


@scenario(n1=1)
async def test_a_cordoned_node_does_not_count(world: World) -> None:
    world.add_node("n2", 1)
    await warmed(world, 2, warm=1)
    world.server.change(NODES, "n2", "", lambda obj: obj["spec"].update(unschedulable=True))
    world.native_pod("native")
    await expect_running(world, "native", seconds=SECONDS)


@scenario(n1=1, n2=1)
async def test_none_gives_way_on_a_node_without_room_for_the_pod(world: World) -> None:
    await warmed(world, 2, warm=1)
    short = {WHOLE_GPU_RESOURCE: "1", "cpu": "1"}
    world.server.change(NODES, "n1", "", lambda obj: obj["status"].update(allocatable=short))
    wide = {WHOLE_GPU_RESOURCE: "1", "cpu": "4"}
    world.native_pod("native", containers=[{"name": "main", "resources": {"limits": wide}}])
    await expect_running(world, "native", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in world.server.all(VGPUS)] == ["n1"]
