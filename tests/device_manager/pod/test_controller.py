"""Plain pods after their gate is removed, and cleanup of those never started."""

from typing import Any

from expectations import (
    expect_bound,
    expect_cleaned_up,
    expect_condition,
    expect_event,
    expect_holders,
    expect_no_vgpus,
    expect_plain_pods,
    expect_replicas,
    expect_running,
    expect_ungated,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS

Raw = dict[str, Any]


@scenario(n1=1)
async def test_a_pod_that_is_deleted_while_it_waits_for_its_gpu_leaves_nothing(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    pod = world.plain("a")
    await expect_holders(world, ["a"])
    world.actors.delete(pod)
    await expect_cleaned_up(world)


@scenario(n1=1)
async def test_a_pod_that_ends_gives_its_part_back(world: World) -> None:
    world.start()
    world.plain("a")
    await expect_running(world, "a")
    world.end("a")
    await expect_cleaned_up(world)


@scenario(n1=1)
async def test_a_pod_that_fails_before_it_is_bound_gives_its_part_back(world: World) -> None:
    """As a pod fails whose active deadline is exceeded."""
    world.actors.node_agents = False
    world.start()
    world.plain("a")
    await expect_holders(world, ["a"])
    world.server.change(PODS, "a", "default", lambda pod: pod["status"].update(phase="Failed"))
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_replicas_share_one_gpu_and_are_replaced_one_by_one(world: World) -> None:
    world.start()
    world.replicas("web", 2)
    first, _ = await expect_replicas(world, 2)
    assert len(world.vgpus()) == 1
    world.actors.delete(the_pod(world, first))
    replicas = await expect_replicas(world, 2, without=first)
    assert [sorted(names) for names in world.vgpus().values()] == [sorted(replicas)]


@scenario(n1=1, n2=1)
async def test_a_controllers_pod_for_which_there_is_no_room_after_all_is_made_again(
    world: World,
) -> None:
    world.start()
    world.actors.full = {"n1", "n2"}
    world.replicas("web", 1)
    await expect_event(world, "web-0", "NodeFull")
    await expect_plain_pods(world, 1, without="web-0")
    world.actors.full = set()
    world.actors.reconcile()
    await expect_replicas(world, 1)
    assert len(world.vgpus()) == 1


@scenario(n1=1)
async def test_the_pods_of_a_controller_are_made_again_less_and_less_often(world: World) -> None:
    world.start()
    world.actors.full = {"n1"}
    world.replicas("web", 1)
    await world.quiet(150)
    asked = [each for each in world.server.requests if each.verb == "delete"]
    deleted = [each for each in asked if each.path.name.startswith("web-")]
    assert 2 <= len(deleted) <= 4


@scenario(n1=1)
async def test_a_pod_of_its_own_keeps_its_place_and_says_why_it_waits(world: World) -> None:
    world.start()
    world.actors.full = {"n1"}
    world.plain("a")
    await expect_event(world, "a", "Unschedulable")
    event = next(each for each in world.events("a") if "Unschedulable" in each)
    assert "kube-scheduler says: insufficient cpu" in event
    assert "keeps its share" in event
    world.actors.full = set()
    world.actors.reconcile()
    await expect_running(world, "a")


@scenario(n1=2)
async def test_a_pod_of_two_gpus_has_its_uid_in_both_holders(world: World) -> None:
    world.start()
    pod = world.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    world.invariants.doubles = True
    await expect_running(world, "a")
    assert list(world.vgpus().values()) == [["a"], ["a"]]
    assert world.pod_uids() == {"a": pod["metadata"]["uid"]}


@scenario(n1=2)
async def test_a_pod_is_not_let_run_while_one_of_its_gpus_is_not_held(world: World) -> None:
    world.actors.binds = False
    world.invariants.doubles = True
    world.start()
    world.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    await expect_ungated(world, "a")
    await world.kill()
    world.server.change(VGPUS, min(world.vgpus()), "", lambda obj: obj["status"].update(holders=[]))
    world.actors.binds = True
    world.start("devices")
    await expect_bound(world, "a")
    await world.quiet(5)
    assert world.pod_uids() == {"a": ""}


@scenario(n1=1, n2=1)
async def test_a_pod_that_somebody_bound_elsewhere_is_given_nothing(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.plain("a")
    await expect_condition(world, "a", CONDITION_POD_SCHEDULED, "Bound")
    (gpuid,) = world.vgpus()
    other = {"n1": "n2", "n2": "n1"}[world.vgpu(gpuid)["spec"]["nodeName"]]
    world.server.change(PODS, "a", "default", lambda pod: pod["spec"].update(nodeName=other))
    await expect_no_vgpus(world)
    assert not world.running("a")


@scenario(n1=1, n2=1)
async def test_a_controllers_pod_on_a_node_that_is_gone_runs_elsewhere(world: World) -> None:
    world.start()
    world.replicas("web", 1)
    (first,) = await expect_replicas(world, 1)
    world.lose_node(the_pod(world, first)["spec"]["nodeName"])
    await expect_replicas(world, 1, without=first)
    await expect_vgpus(world, 1, placeholders=1)
    assert len(world.server.all(NODES)) == 1
