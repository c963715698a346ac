"""A vGPU is identified by its node and its GPUID, which may be any printable text."""

from expectations import expect_condition, expect_running, expect_vgpu_deleted
from fakes import manifests
from fakes.cluster import World, scenario
from fakes.cluster.disruptions import cordon
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.gpuid import hashed_name
from kubeshare.simulator.control import Fault

ANY_TEXT = 'GPU 0, "é" / #1'


def identities(world: World) -> dict[tuple[str, str], list[str]]:
    """Node and GPUID of each vGPU -> the names of its holders."""
    held = world.vgpus()
    return {
        (each["spec"]["nodeName"], each["spec"]["gpuid"]): held[each["metadata"]["name"]]
        for each in world.server.all(VGPUS)
    }


@scenario(n1=1, n2=1)
async def test_one_gpuid_on_two_nodes_is_two_gpus(world: World) -> None:
    world.start()
    world.share("a", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(world, "a")
    world.share("b", id="gpu0", spec={"nodeName": "n2"})
    world.share("c", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(world, "b", "c")
    assert identities(world) == {("n1", "gpu0"): ["a", "c"], ("n2", "gpu0"): ["b"]}
    assert world.vgpus() == {"gpu0": ["a", "c"], hashed_name("n2", "gpu0"): ["b"]}
    assert {"gpu0"} == {each["id"] for each in world.sharepod("b")["status"]["gpus"]}
    world.delete("b")
    await expect_vgpu_deleted(world, hashed_name("n2", "gpu0"))
    assert world.running("a", "c")


@scenario(n1=2)
async def test_a_gpuid_that_is_no_name_of_an_object_is_shared_by_all_who_name_it(
    world: World,
) -> None:
    world.start()
    world.share("a", "0.5", id=ANY_TEXT)
    world.share("b", "0.5", id=ANY_TEXT, spec={"nodeName": "n1"})
    await expect_running(world, "a", "b")
    assert identities(world) == {("n1", ANY_TEXT): ["a", "b"]}
    world.delete("a")
    world.delete("b")
    await expect_vgpu_deleted(world, hashed_name("n1", ANY_TEXT))
    assert world.placeholders() == []


@scenario(n1=2)
async def test_several_gpus_of_gpuids_that_are_no_names_are_had_together(world: World) -> None:
    world.start()
    world.share("a", "0.6", count=2, ids=["B, 1", "A"], spec={"nodeName": "n1"})
    await expect_running(world, "a")
    assert identities(world) == {("n1", "A"): ["a"], ("n1", "B, 1"): ["a"]}


@scenario(n1=1, n2=2)
async def test_without_a_node_one_that_has_the_gpuid_is_chosen_and_no_other_is_opened(
    world: World,
) -> None:
    world.start()
    world.share("a", "0.6", id="gpu0", spec={"nodeName": "n1"})
    world.share("b", "0.5", id="gpu0", spec={"nodeName": "n2"})
    await expect_running(world, "a", "b")
    world.share("c", "0.4", id="gpu0")
    world.share("d", "0.5", id="gpu0")
    await expect_running(world, "c", "d")
    assert identities(world) == {("n1", "gpu0"): ["a", "c"], ("n2", "gpu0"): ["b", "d"]}
    world.share("e", "0.5", id="gpu0")
    await expect_condition(world, "e", "Scheduled")
    assert world.condition("e", "Scheduled")["reason"] == "NoRoom"
    await world.quiet(30)
    assert len(world.vgpus()) == 2


@scenario(n1=1, n2=1)
async def test_a_node_that_has_the_gpuid_and_takes_no_pods_is_waited_for(world: World) -> None:
    world.start()
    await world.run("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    cordon(world, "n1")
    world.share("b", "0.1", id="gpu0")
    await expect_condition(world, "b", "Scheduled")
    assert world.condition("b", "Scheduled")["status"] == "False"
    await world.quiet(30)
    assert len(world.vgpus()) == 1


@scenario(n1=1)
async def test_a_vgpu_of_an_earlier_version_has_its_name_as_gpuid(world: World) -> None:
    world.start()
    world.configure(pool={"policy": "reservation"})
    world.server.seed(VGPUS, manifests.vgpu("gpu0", "n1", pool="reserved"))
    world.share("a", "0.5", id="gpu0")
    world.share("b", "0.5", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(world, "a", "b")
    assert world.vgpus() == {"gpu0": ["a", "b"]}
    assert "gpuid" not in world.vgpu("gpu0")["spec"]


@scenario(n1=2)
async def test_of_two_vgpus_of_one_node_and_gpuid_only_one_takes_holders(world: World) -> None:
    world.start()
    world.configure(pool={"policy": "reservation"})
    await world.run("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    double = hashed_name("n1", "gpu0")
    world.server.seed(VGPUS, manifests.vgpu(double, "n1", pool="reserved", gpuid="gpu0"))
    world.share("b", "0.1", id="gpu0", spec={"nodeName": "n1"})
    world.share("c", "0.1", id="gpu0")
    await expect_running(world, "b", "c")
    await expect_vgpu_deleted(world, hashed_name("n1", "gpu0"))
    assert sorted(world.vgpus()["gpu0"]) == ["a", "b", "c"]


@scenario(n1=1, n2=1)
async def test_a_name_that_turns_out_to_be_taken_leads_to_no_pod_on_another_gpu(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("devices")
    await world.quiet(1)
    world.server.seed(VGPUS, manifests.vgpu("gpu0", "n2", pool="reserved"))
    world.share("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(world, "a")
    assert world.vgpus()[hashed_name("n1", "gpu0")] == ["a"]
    assert world.vgpus().get("gpu0", []) == []
    assert world.pod("a", "default")["spec"]["nodeName"] == "n1"  # type: ignore[index]


@scenario(n1=1)
async def test_a_generated_name_is_not_for_authors(world: World) -> None:
    world.start()
    world.share("a", "0.1", id="vgpu-mine")
    await expect_condition(world, "a", "Scheduled")
    assert "of that prefix are not for users" in world.condition("a", "Scheduled")["message"]


@scenario(n1=1)
async def test_an_administrator_may_switch_off_that_authors_choose_gpuids(world: World) -> None:
    world.configure(gpuidScope="none")
    world.start()
    world.share("a", "0.1", id="gpu0")
    world.share("b", "0.1", id="gpu0", spec={"nodeName": "n1"})
    await expect_condition(world, "a", "Scheduled")
    assert "gpuidScope: none" in world.condition("a", "Scheduled")["message"]
    await expect_condition(world, "b", "Allocated")
    assert "gpuidScope: none" in world.condition("b", "Allocated")["message"]
    await world.run("c", "0.1")
    world.configure(gpuidScope="cluster", pool={"policy": "onDemand"})
    world.delete("c")
    await expect_running(world, "a", "b")
