"""Nodes that are deleted, or only not ready, with vGPUs on them."""

from expectations import (
    assert_pending,
    assert_scheduled,
    expect_activated,
    expect_no_vgpus,
    expect_on_node,
    expect_pod,
    expect_ready,
    expect_running,
    expect_vgpu_deleted,
)
from fakes.cluster import World, scenario, seed_held
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_sharepod_of_a_deleted_node_runs_on_another_one(world: World) -> None:
    world.start()
    await world.run("a")
    world.add_node("n2", 1)
    world.lose_node("n1")
    await expect_on_node(world, "a", "n2")
    await expect_running(world, "a")
    assert_scheduled(world, "a", node="n2")
    assert len(world.vgpus()) == 1
    assert len(world.placeholders()) == 1


@scenario(n1=1)
async def test_a_sharepod_that_lost_its_node_and_finds_no_other_is_not_ready(
    world: World,
) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    world.lose_node("n1")
    await world.until(lambda: not world.ready("a"))
    assert_pending(world, "a")
    assert world.condition("a", "Allocated")["reason"] == "Undone"
    assert world.sharepod("a")["status"]["phase"] == ""
    assert not world.vgpus()


@scenario(n1=1)
async def test_a_node_that_is_not_ready_keeps_its_gpus_and_pods(world: World) -> None:
    world.start()
    await world.run("a")
    world.actors.node_agents = False
    unknown = [{"type": "Ready", "status": "Unknown"}]
    world.server.change(NODES, "n1", "", lambda node: node["status"].update(conditions=unknown))
    await world.quiet(600)
    assert world.shares_gpu("a")
    assert world.running("a")


@scenario(n1=1)
async def test_a_node_that_was_only_not_seen_yet_is_not_taken_for_lost(world: World) -> None:
    world.start()
    await world.run("a")
    await world.kill()
    world.server.inject(Fault.hang(), verb="list", resource="nodes")
    world.start("devices")
    await world.quiet(5)
    assert world.shares_gpu("a")


@scenario(n1=1)
async def test_a_reserved_vgpu_of_a_deleted_node_goes_with_it(world: World) -> None:
    world.reserve("n1", "kept")
    world.start()
    await expect_activated(world)
    world.lose_node("n1")
    await expect_no_vgpus(world)
    await world.quiet()
    assert not world.server.all(VGPUS)
    assert not world.placeholders()


@scenario(n1=1, n2=1)
async def test_a_decision_for_a_node_that_was_deleted_meanwhile_is_made_again(
    world: World,
) -> None:
    """As by a scheduler whose watch of nodes is not restored yet after an outage."""
    world.start("devices")
    await world.quiet()
    world.lose_node("n1")
    await world.quiet()
    uid = world.share("a")["metadata"]["uid"]
    seed_held(world, uid)
    decided = {"nodeName": "n1", "gpu": {"request": "0.3", "id": "x", "attempt": 1}}
    world.server.change(SHAREPODS, "a", "default", lambda each: each["spec"].update(decided))
    await world.quiet(1)
    assert world.shares_gpu("a"), "it would come back at once while nobody has heard of the node"
    await expect_on_node(world, "a", "")
    assert not world.vgpus()
    world.start("scheduler")
    await expect_running(world, "a")
    assert_scheduled(world, "a", node="n2")


@scenario(n1=1)
async def test_a_part_on_a_deleted_node_is_held_as_long_as_its_pod_is_there(world: World) -> None:
    world.actors.binds = False
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    world.lose_node("n1")
    await world.quiet(8)
    assert world.shares_gpu("a")
    world.delete("a")
    await expect_no_vgpus(world)


@scenario(n1=1, n2=1)
async def test_a_holder_on_a_deleted_node_goes_though_its_pod_that_ended_is_there(
    world: World,
) -> None:
    world.lose_node("n1")
    world.share("a", id="y", spec={"nodeName": "n2"})
    world.start("devices")
    await expect_running(world, "a")
    pod = the_pod(world, "a")
    world.end("a")
    seed_held(world, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = pod["metadata"]["uid"]

    world.server.change(VGPUS, "x", "", bind)
    await expect_vgpu_deleted(world, "x")
    assert world.pod("a") is not None


@scenario(n1=1, n2=1)
async def test_a_holder_on_a_deleted_node_goes_though_its_pods_namesake_runs_elsewhere(
    world: World,
) -> None:
    world.lose_node("n1")
    world.share("a", id="y", spec={"nodeName": "n2"})
    world.start("devices")
    await expect_running(world, "a")
    seed_held(world, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = "its former pod"

    world.server.change(VGPUS, "x", "", bind)
    await world.until(lambda: world.vgpus() == {"y": ["a"]})
