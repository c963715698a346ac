"""Plain pods after their gate is gone, and what is left of those that never got so far."""

from typing import Any

from fakes.cluster import World, story
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS

Raw = dict[str, Any]


def alive(world: World) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in world.plain_pods()
        if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]


@story(n1=1)
async def test_a_pod_that_is_deleted_while_it_waits_for_its_gpu_leaves_nothing(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    pod = world.plain("a")
    await world.until(lambda: list(world.vgpus().values()) == [["a"]])
    world.actors.delete(pod)
    await world.until(lambda: not world.vgpus() and not world.placeholders())


@story(n1=1)
async def test_a_pod_that_ends_gives_its_part_back(world: World) -> None:
    world.start()
    world.plain("a")
    await world.until(lambda: world.running("a"))
    world.end("a")
    await world.until(lambda: not world.vgpus() and not world.placeholders())


@story(n1=1)
async def test_a_pod_that_fails_before_it_is_bound_gives_its_part_back(world: World) -> None:
    """As one does whose deadline is over."""
    world.actors.node_agents = False
    world.start()
    world.plain("a")
    await world.until(lambda: list(world.vgpus().values()) == [["a"]])
    world.server.change(PODS, "a", "default", lambda pod: pod["status"].update(phase="Failed"))
    await world.until(lambda: not world.vgpus())


@story(n1=1)
async def test_replicas_share_one_gpu_and_are_replaced_one_by_one(world: World) -> None:
    world.start()
    world.replicas("web", 2)
    await world.until(lambda: len(alive(world)) == 2)
    assert len(world.vgpus()) == 1
    first = alive(world)[0]
    pod = world.pod(first)
    assert pod is not None
    world.actors.delete(pod)
    await world.until(lambda: len(alive(world)) == 2 and first not in alive(world))
    assert [sorted(held) for held in world.vgpus().values()] == [sorted(alive(world))]


@story(n1=1, n2=1)
async def test_a_controllers_pod_for_which_there_is_no_room_after_all_is_made_again(
    world: World,
) -> None:
    world.start()
    world.actors.full = {"n1", "n2"}
    world.replicas("web", 1)
    await world.until(lambda: any("NodeFull" in each for each in world.events("web-0")))
    await world.until(lambda: world.plain_pods() and world.pod("web-0") is None)
    world.actors.full = set()
    world.actors.look()
    await world.until(lambda: alive(world))
    assert len(world.vgpus()) == 1


@story(n1=1)
async def test_the_pods_of_a_controller_are_made_again_less_and_less_often(world: World) -> None:
    world.start()
    world.actors.full = {"n1"}
    world.replicas("web", 1)
    await world.quiet(150)
    asked = [each for each in world.server.requests if each.verb == "delete"]
    deleted = [each for each in asked if each.place.name.startswith("web-")]
    assert 2 <= len(deleted) <= 4


@story(n1=1)
async def test_a_pod_of_its_own_keeps_its_place_and_says_why_it_waits(world: World) -> None:
    world.start()
    world.actors.full = {"n1"}
    world.plain("a")
    await world.until(lambda: any("Unschedulable" in each for each in world.events("a")))
    told = next(each for each in world.events("a") if "Unschedulable" in each)
    assert "kube-scheduler says: insufficient cpu" in told
    assert "keeps its part" in told
    world.actors.full = set()
    world.actors.look()
    await world.until(lambda: world.running("a"))


@story(n1=2)
async def test_a_pod_of_two_gpus_has_its_uid_in_both_holders(world: World) -> None:
    world.start()
    pod = world.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    world.invariants.doubles = True
    await world.until(lambda: world.running("a"))
    assert list(world.vgpus().values()) == [["a"], ["a"]]
    assert world.pod_uids() == {"a": pod["metadata"]["uid"]}


@story(n1=2)
async def test_a_pod_is_not_let_run_while_one_of_its_gpus_is_not_held(world: World) -> None:
    world.actors.binds = False
    world.invariants.doubles = True
    world.start()
    world.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    await world.until(lambda: not (world.pod("a") or {})["spec"].get("schedulingGates"))
    await world.kill()
    world.server.change(VGPUS, min(world.vgpus()), "", lambda obj: obj["status"].update(holders=[]))
    world.actors.binds = True
    world.start("devices")
    await world.until(lambda: (world.pod("a") or {})["spec"].get("nodeName"))
    await world.quiet(5)
    assert world.pod_uids() == {"a": ""}


@story(n1=1, n2=1)
async def test_a_pod_that_somebody_bound_elsewhere_is_given_nothing(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.plain("a")
    await world.until(lambda: world.pod_condition("a").get("reason") == "Bound")
    (gpuid,) = world.vgpus()
    other = {"n1": "n2", "n2": "n1"}[world.vgpu(gpuid)["spec"]["nodeName"]]
    world.server.change(PODS, "a", "default", lambda pod: pod["spec"].update(nodeName=other))
    await world.until(lambda: not world.vgpus())
    assert not world.running("a")


@story(n1=1, n2=1)
async def test_a_controllers_pod_on_a_node_that_is_gone_runs_elsewhere(world: World) -> None:
    world.start()
    world.replicas("web", 1)
    await world.until(lambda: alive(world))
    (first,) = alive(world)
    pod = world.pod(first)
    assert pod is not None
    world.lose_node(pod["spec"]["nodeName"])
    await world.until(lambda: alive(world) and alive(world) != [first])
    await world.until(lambda: len(world.vgpus()) == len(world.placeholders()) == 1)
    assert len(world.server.all(NODES)) == 1
