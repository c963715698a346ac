"""Pool policies keep, warm up and delete idle vGPUs."""

from expectations import (
    expect_cleaned_up,
    expect_event,
    expect_holders,
    expect_no_vgpus,
    expect_phase,
    expect_phases,
    expect_vgpu_deleted,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import vgpu_phases
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault


def labelled(world: World, node: str, policy: str) -> None:
    label = {"kubeshare.nthu/pool": policy}
    world.server.change(NODES, node, "", lambda obj: obj["metadata"]["labels"].update(label))


@scenario(n1=2)
async def test_by_reservation_a_vgpu_stays_and_the_next_sharepod_takes_it(world: World) -> None:
    world.configure(pool={"policy": "reservation"})
    world.start()
    await world.run("a")
    (gpuid,) = world.vgpus()
    assert vgpu_phases(world) == ["Active"]
    world.delete("a")
    await expect_phases(world, "Idle")
    await world.quiet(60)
    await world.run("b", "0.9")
    assert world.vgpus() == {gpuid: ["b"]}
    assert vgpu_phases(world) == ["Active"]
    assert len(world.placeholders()) == 1


@scenario(n1=3)
async def test_warm_ones_are_made_ahead_and_a_warm_one_needs_no_new_placeholder(
    world: World,
) -> None:
    world.configure(pool={"policy": "reservation", "warm": 1})
    world.start()
    await expect_phases(world, "Idle")
    (warm,) = world.vgpus()
    await world.run("a", "1")
    assert world.vgpus()[warm] == ["a"]
    await expect_phases(world, "Active", "Idle")
    await world.run("b", "1")
    await expect_phases(world, "Active", "Active", "Idle")
    await world.run("c", "1")
    await world.quiet(30)
    assert vgpu_phases(world) == ["Active"] * 3


@scenario(n1=3)
async def test_hybrid_keeps_the_minimum_and_lets_the_rest_go_after_a_time(world: World) -> None:
    world.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 60})
    world.start()
    await expect_phases(world, "Idle")
    await world.run("a", "1")
    await world.run("b", "1")
    world.delete("a")
    world.delete("b")
    await expect_phases(world, "Idle", "Idle")
    await world.quiet(50)
    assert vgpu_phases(world) == ["Idle", "Idle"]
    await expect_phases(world, "Idle", seconds=15)
    await world.quiet(60)
    assert vgpu_phases(world) == ["Idle"]


@scenario(n1=2)
async def test_a_policy_that_is_changed_is_carried_out_at_once(world: World) -> None:
    world.start()
    await world.quiet(10)
    assert not world.vgpus()
    world.configure(pool={"policy": "reservation", "minimum": 2})
    await expect_phases(world, "Idle", "Idle")
    world.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 0})
    await expect_phases(world, "Idle")
    world.configure()
    await expect_cleaned_up(world)


@scenario(n1=1, n2=1)
async def test_a_nodes_label_says_its_policy(world: World) -> None:
    world.configure(pool={"minimum": 1})
    world.start()
    labelled(world, "n2", "reservation")
    await expect_phases(world, "Idle")
    assert [each["spec"]["nodeName"] for each in world.server.all(VGPUS)] == ["n2"]
    labelled(world, "n2", "onDemand")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_a_label_that_is_no_policy_is_told_and_changes_nothing(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1})
    labelled(world, "n1", "ondemand")
    world.start()
    await expect_phases(world, "Idle")
    await expect_event(world, "n1")
    assert "says ondemand, which is no pool policy" in world.events("n1")[0]


@scenario(n1=2)
async def test_a_cordoned_node_keeps_no_idle_vgpu_and_makes_none(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 2})
    world.start()
    await expect_phases(world, "Idle", "Idle")
    world.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=True))
    await expect_no_vgpus(world)
    await world.quiet(30)
    assert not world.vgpus()
    world.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=False))
    await expect_phases(world, "Idle", "Idle")


@scenario(n1=1)
async def test_an_idle_vgpu_that_lost_its_placeholder_is_made_anew(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1})
    world.start()
    await expect_phases(world, "Idle")
    (first,) = world.vgpus()
    world.server.remove(PODS, world.placeholders()[0], "kubeshare-system")
    await expect_phases(world, "Idle")
    await expect_vgpu_deleted(world, first)


@scenario(n1=1)
async def test_the_pool_is_as_it_was_after_a_restart(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1, "warm": 1})
    world.start()
    await expect_phases(world, "Idle")
    before = world.vgpus()
    await world.kill()
    world.start()
    await world.quiet(60)
    assert world.vgpus() == before


@scenario(n1=2)
async def test_idle_vgpus_stay_while_a_kubelet_starts_and_offers_nothing(world: World) -> None:
    world.configure(pool={"policy": "reservation", "warm": 2})
    world.start()
    await expect_phases(world, "Idle", "Idle")
    before = world.vgpus()
    for count in (0, 1, 2):
        world.offer("n1", count)
        await world.quiet(20)
    assert world.vgpus() == before


@scenario(n1=1)
async def test_a_vgpu_that_became_idle_unseen_is_looked_at_when_the_watch_is_back(
    world: World,
) -> None:
    """After the watch broke, no event reports the change."""
    world.reserve("n1", "x")
    world.start()
    await expect_phase(world, "x", phase="Idle")
    await world.kill("devices")
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("devices")
    await world.run("a", id="x", spec={"nodeName": "n1"})
    world.configure(pool={"policy": "onDemand"})
    await world.quiet(5)
    world.delete("a")
    await expect_holders(world, [])
    world.server.compact()
    await expect_no_vgpus(world, seconds=200)
