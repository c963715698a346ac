"""Restarts bound pods that lost an allocation before starting."""

from itertools import count

from expectations import (
    expect_condition,
    expect_event,
    expect_holder_count,
    expect_no_pod,
    expect_pod,
    expect_replaced,
    expect_running,
    expect_ungated,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault

TWO = {"kubeshare.nthu/count": "2"}


def lose_a_part(world: World) -> str:
    """Removes a holder as a paused former leader may; returns its vGPU."""
    lost = min(world.vgpus())
    world.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=[]))
    return lost


async def bound_with_one_part(world: World, name: str = "a") -> Raw:
    """Binds the pod after one of its shares is gone, while no program runs."""
    await expect_holder_count(world, 2)
    await expect_pod(world, name)
    await world.quiet(1)
    await world.kill()
    lose_a_part(world)
    world.actors.binds = True
    world.actors.reconcile()
    pod = the_pod(world, name)
    assert pod["spec"]["nodeName"]
    world.start()
    return pod


@scenario(n1=2)
async def test_a_sharepod_has_its_gpus_chosen_again(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.share("a", "0.6", count=2)
    pod = await bound_with_one_part(world)
    await expect_condition(world, "a", "Allocated", "PartTakenBack")
    await expect_replaced(world, pod)
    await expect_running(world, "a")
    assert list(world.vgpus().values()) == [["a"], ["a"]]
    words = "was taken back before the pod began: the pod is deleted"
    assert any(words in each for each in world.events("a"))
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 2


@scenario(n1=1)
async def test_one_that_has_lost_all_begins_again_too(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    await world.quiet(1)
    await world.kill()
    lose_a_part(world)
    world.actors.binds = True
    world.actors.reconcile()
    before = the_pod(world, "a")
    world.start()
    await expect_replaced(world, before)
    await expect_running(world, "a")


@scenario(n1=2)
async def test_a_controllers_pod_is_made_again_when_its_budget_allows_it(world: World) -> None:
    world.actors.binds = False
    world.invariants.doubles = True
    world.start()
    numbers, owned = count(), {"owner": "web", "annotations": TWO}

    def make() -> None:
        world.plain(f"web-{next(numbers)}", "0.6", **owned)

    world.actors.controllers["web"] = (make, 1)
    world.actors.reconcile()
    refused = Fault.answer(429, "TooManyRequests")
    world.server.inject(refused, verb="create", resource="pods/eviction")
    await expect_ungated(world, "web-0")
    await bound_with_one_part(world, "web-0")
    await expect_event(world, "web-0", "EvictionRefused")
    await expect_no_pod(world, "web-0")
    await expect_running(world, "web-1")
    assert any("so that its controller makes another" in each for each in world.events("web-0"))


@scenario(n1=2)
async def test_a_pod_of_its_own_is_told_what_to_do_once(world: World) -> None:
    world.actors.binds = False
    world.invariants.doubles = True
    world.start()
    world.plain("a", "0.6", annotations=TWO)
    await expect_ungated(world, "a")
    pod = await bound_with_one_part(world)
    await expect_event(world, "a", "PartTakenBack")
    await world.quiet(100)
    (event,) = [each for each in world.events("a") if each.startswith("PartTakenBack")]
    assert event.endswith("delete it, and make it again")
    assert is_same_pod(world, pod)


@scenario(n1=2)
async def test_a_pod_that_has_begun_is_its_nodes(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.share("a", "0.6", count=2)
    pod = await bound_with_one_part(world)
    begun = {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
    world.server.change(PODS, "a", "default", lambda obj: obj["status"].update(begun))
    await world.quiet(120)
    assert is_same_pod(world, pod)


@scenario(n1=2)
async def test_a_part_that_is_only_not_seen_is_not_missed(world: World) -> None:
    """The watch of vGPUs lags: the controller reads from the API server before it acts."""
    world.actors.binds = False
    world.configure(pool={"policy": "reservation"})
    world.start()
    world.share("a", "0.6", count=2)
    pod = await bound_with_one_part(world)
    await expect_condition(world, "a", "Allocated", "PartTakenBack")
    lost, kept = sorted(world.vgpus(), key=lambda gpuid: len(world.vgpus()[gpuid]))
    holders = world.vgpu(kept)["status"]["holders"]
    world.server.freeze_watches()
    world.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=holders))
    await world.quiet(60)
    assert is_same_pod(world, pod)
