"""Pool policies: which idle vGPUs are kept, made ahead of demand, and let go."""

from fakes.cluster import World, story
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault


def phases(world: World) -> list[str]:
    return sorted(vgpu["status"]["phase"] for vgpu in world.server.all(VGPUS))


def labelled(world: World, node: str, policy: str) -> None:
    label = {"kubeshare.nthu/pool": policy}
    world.server.change(NODES, node, "", lambda obj: obj["metadata"]["labels"].update(label))


@story(n1=2)
async def test_by_reservation_a_vgpu_stays_and_the_next_sharepod_takes_it(world: World) -> None:
    world.configure(pool={"policy": "reservation"})
    world.start()
    await world.run("a")
    (gpuid,) = world.vgpus()
    assert phases(world) == ["Active"]
    world.delete("a")
    await world.until(lambda: phases(world) == ["Idle"])
    await world.quiet(60)
    await world.run("b", "0.9")
    assert world.vgpus() == {gpuid: ["b"]}
    assert phases(world) == ["Active"]
    assert len(world.placeholders()) == 1


@story(n1=3)
async def test_warm_ones_are_made_ahead_and_a_warm_one_needs_no_new_placeholder(
    world: World,
) -> None:
    world.configure(pool={"policy": "reservation", "warm": 1})
    world.start()
    await world.until(lambda: phases(world) == ["Idle"])
    (warm,) = world.vgpus()
    await world.run("a", "1")
    assert world.vgpus()[warm] == ["a"]
    await world.until(lambda: phases(world) == ["Active", "Idle"])
    await world.run("b", "1")
    await world.until(lambda: phases(world) == ["Active", "Active", "Idle"])
    await world.run("c", "1")
    await world.quiet(30)
    assert phases(world) == ["Active"] * 3


@story(n1=3)
async def test_hybrid_keeps_the_minimum_and_lets_the_rest_go_after_a_time(world: World) -> None:
    world.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 60})
    world.start()
    await world.until(lambda: phases(world) == ["Idle"])
    await world.run("a", "1")
    await world.run("b", "1")
    world.delete("a")
    world.delete("b")
    await world.until(lambda: phases(world) == ["Idle", "Idle"])
    await world.quiet(50)
    assert phases(world) == ["Idle", "Idle"]
    await world.until(lambda: phases(world) == ["Idle"], 15)
    await world.quiet(60)
    assert phases(world) == ["Idle"]


@story(n1=2)
async def test_a_policy_that_is_changed_is_carried_out_at_once(world: World) -> None:
    world.start()
    await world.quiet(10)
    assert not world.vgpus()
    world.configure(pool={"policy": "reservation", "minimum": 2})
    await world.until(lambda: phases(world) == ["Idle", "Idle"])
    world.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 0})
    await world.until(lambda: phases(world) == ["Idle"])
    world.configure()
    await world.until(lambda: not world.vgpus() and not world.placeholders())


@story(n1=1, n2=1)
async def test_a_nodes_label_says_its_policy(world: World) -> None:
    world.configure(pool={"minimum": 1})
    world.start()
    labelled(world, "n2", "reservation")
    await world.until(lambda: phases(world) == ["Idle"])
    assert [each["spec"]["nodeName"] for each in world.server.all(VGPUS)] == ["n2"]
    labelled(world, "n2", "onDemand")
    await world.until(lambda: not world.vgpus())


@story(n1=1)
async def test_a_label_that_is_no_policy_is_told_and_changes_nothing(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1})
    labelled(world, "n1", "ondemand")
    world.start()
    await world.until(lambda: phases(world) == ["Idle"])
    await world.until(lambda: world.events("n1"))
    assert "says ondemand, which is no pool policy" in world.events("n1")[0]


@story(n1=2)
async def test_a_cordoned_node_keeps_no_idle_vgpu_and_makes_none(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 2})
    world.start()
    await world.until(lambda: phases(world) == ["Idle", "Idle"])
    world.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=True))
    await world.until(lambda: not world.vgpus())
    await world.quiet(30)
    assert not world.vgpus()
    world.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=False))
    await world.until(lambda: phases(world) == ["Idle", "Idle"])


@story(n1=1)
async def test_an_idle_vgpu_that_lost_its_placeholder_is_made_anew(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1})
    world.start()
    await world.until(lambda: phases(world) == ["Idle"])
    (first,) = world.vgpus()
    world.server.remove(PODS, world.placeholders()[0], "kubeshare-system")
    await world.until(lambda: phases(world) == ["Idle"] and first not in world.vgpus())


@story(n1=1)
async def test_the_pool_is_as_it_was_after_a_restart(world: World) -> None:
    world.configure(pool={"policy": "reservation", "minimum": 1, "warm": 1})
    world.start()
    await world.until(lambda: phases(world) == ["Idle"])
    before = world.vgpus()
    await world.kill()
    world.start()
    await world.quiet(60)
    assert world.vgpus() == before


@story(n1=2)
async def test_idle_vgpus_stay_while_a_kubelet_starts_and_offers_nothing(world: World) -> None:
    world.configure(pool={"policy": "reservation", "warm": 2})
    world.start()
    await world.until(lambda: phases(world) == ["Idle", "Idle"])
    before = world.vgpus()
    for count in (0, 1, 2):
        world.offer("n1", count)
        await world.quiet(20)
    assert world.vgpus() == before


@story(n1=1)
async def test_a_vgpu_that_became_idle_unseen_is_looked_at_when_the_watch_is_back(
    world: World,
) -> None:
    """All that the watch tells of it is what it told before it broke."""
    world.reserve("n1", "x")
    world.start()
    await world.until(lambda: world.vgpu("x")["status"].get("phase") == "Idle")
    await world.kill("devices")
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("devices")
    await world.run("a", id="x", spec={"nodeName": "n1"})
    world.configure(pool={"policy": "onDemand"})
    await world.quiet(5)
    world.delete("a")
    await world.until(lambda: world.vgpus() == {"x": []})
    world.server.compact()
    await world.until(lambda: not world.vgpus(), seconds=200)
