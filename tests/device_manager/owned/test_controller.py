"""Nodes whose GPUs KubeShare owns: takeover, static vGPUs, giving back."""

import pytest

from expectations import (
    expect_condition,
    expect_event,
    expect_holders,
    expect_no_vgpus,
    expect_owned,
    expect_pending,
    expect_phases,
    expect_running,
    expect_scheduled,
    expect_vgpus,
)
from fakes import manifests
from fakes.cluster import World, scenario
from fakes.cluster.disruptions import cordon, label_node, own, recreate_node, stop_plugin
from fakes.cluster.state import gpunode, is_same_pod, owned, the_pod, vgpu_phases
from fakes.cluster.world import GIB, gpu_uuid
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import NODES, PODS

LONG = 5 * SETTLED_SECONDS


def mode(world: World, node: str) -> str:
    found = gpunode(world, node).get("status", {}).get("mode", "shared")
    return str(found)


def names(node: str, *indices: int) -> list[str]:
    """The names of the static vGPUs of GPUs."""
    return sorted(static_name(gpu_uuid(node, index)) for index in indices)


async def taken_over(world: World, *nodes: str) -> None:
    world.deadline = LONG
    own(world, *nodes)
    for node in nodes:
        await expect_owned(world, node)


@scenario(n1=2)
async def test_each_gpu_of_an_owned_node_has_a_vgpu_without_a_placeholder(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle", "Idle")
    assert sorted(world.vgpus()) == names("n1", 0, 1)
    found = world.vgpu(names("n1", 0)[0])["spec"]
    assert found["pool"] == "static"
    assert (found["model"], found["memoryBytes"]) == ("V100", 16 * GIB)
    assert mode(world, "n1") == "owned"
    await world.quiet(LONG)
    assert world.placeholders() == []
    assert vgpu_phases(world) == ["Idle", "Idle"]
    await expect_event(world, "n1", "Owned")


@scenario(n1=2, n2=2)
async def test_a_node_that_is_not_asked_for_is_not_written(world: World) -> None:
    world.start()
    await world.run("a")
    await world.quiet(LONG)
    writes = [each for each in world.server.requests if each.resource == "gpunodes/status"]
    assert writes == []


@scenario(n1=2)
async def test_a_selector_of_the_configuration_asks_for_a_node(world: World) -> None:
    world.deadline = LONG
    world.configure(owned={"selectors": ["SharedGPU=true,zone=a", "gpushare=true"]})
    stop_plugin(world, "n1")
    world.start()
    await world.quiet(LONG)
    assert not world.vgpus()
    found = {"gpushare": "true"}
    world.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update(found))
    await expect_owned(world, "n1")
    await expect_phases(world, "Idle", "Idle")
    label_node(world, "n1", gpus="shared")
    await expect_no_vgpus(world)


@pytest.mark.parametrize("policy", ["locality", "binpack", "topology"])
def test_every_policy_places_sharepods_on_an_owned_node(policy: str) -> None:
    @scenario(n1=2)
    async def run(world: World) -> None:
        world.policy = policy
        world.start()
        await taken_over(world, "n1")
        await expect_phases(world, "Idle", "Idle")
        world.share("a", "0.5")
        await expect_running(world, "a")
        world.share("b", "0.5")
        await expect_running(world, "b")
        assert world.shares_gpu("a", "b")
        world.share("c", "1", memory="16Gi")
        await expect_running(world, "c")
        await expect_holders(world, ["a", "b"], ["c"])
        assert world.placeholders() == []
        world.delete("a")
        world.delete("b")
        world.delete("c")
        await expect_phases(world, "Idle", "Idle")

    run()


@scenario(n1=4)
async def test_topology_takes_linked_gpus_of_an_owned_node(world: World) -> None:
    world.policy = "topology"
    world.start()
    await taken_over(world, "n1")
    world.link("n1", gpu_1_3="NV2")
    await expect_phases(world, *["Idle"] * 4)
    await world.run("a", "1", count=2, memory="16Gi")
    held = sorted(gpuid for gpuid, found in world.vgpus().items() if found)
    assert held == names("n1", 1, 3)


@scenario(n1=1)
async def test_a_node_that_offers_gpus_is_not_taken_over_and_stays_as_it_is(world: World) -> None:
    world.deadline = LONG
    label_node(world, "n1", gpus="owned")
    world.start()
    found = await expect_owned(world, "n1", "GPUsOffered")
    assert "kubectl cordon n1" in found["message"]
    assert "nvidia.com/gpu.deploy.device-plugin=false" in found["message"]
    await expect_event(world, "n1", "GPUsOffered")
    await world.run("a")
    assert len(world.placeholders()) == 1
    assert mode(world, "n1") == "shared"


@scenario(n1=1)
async def test_gpus_that_a_dra_driver_offers_are_not_taken_over(world: World) -> None:
    world.deadline = LONG
    world.start()
    await world.quiet(1)
    world.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].update(draCount=1))
    own(world, "n1")
    found = await expect_owned(world, "n1", "GPUsOffered")
    assert "DRA driver" in found["message"]
    assert not world.vgpus()


@scenario(n1=2)
async def test_gpus_that_a_native_pod_uses_are_not_taken_over_before_it_has_ended(
    world: World,
) -> None:
    world.deadline = LONG
    world.start()
    world.native_pod("whole")
    await expect_running(world, "whole")
    own(world, "n1")
    found = await expect_owned(world, "n1", "GPUsInUse")
    assert "default/whole" in found["message"]
    await world.quiet(LONG)
    assert not world.vgpus()
    world.end("whole")
    await expect_phases(world, "Idle", "Idle")


@scenario(n1=1)
async def test_a_pod_that_may_have_a_gpu_by_a_claim_delays_the_takeover(world: World) -> None:
    """The slices of a DRA driver that was stopped are gone, the claims of its pods are not."""
    world.deadline = LONG
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    pod = manifests.pod("claims", nodeName="n1", resourceClaims=claims)
    pod["metadata"]["namespace"] = "default"
    world.server.seed(PODS, pod | {"status": {"phase": "Running"}})
    own(world, "n1")
    world.start()
    found = await expect_owned(world, "n1", "GPUsInUse")
    assert "default/claims" in found["message"]
    assert not world.vgpus()
    world.server.remove(PODS, "claims", "default")
    await expect_phases(world, "Idle")
    world.server.seed(PODS, pod | {"status": {"phase": "Running"}})
    await world.quiet(LONG)
    assert owned(world, "n1")["reason"] == "Owned"


@scenario(n1=1)
async def test_a_plugin_that_restarts_is_no_takeover(world: World) -> None:
    label_node(world, "n1", gpus="owned")
    world.start()
    await expect_owned(world, "n1", "GPUsOffered")
    for _ in range(3):
        stop_plugin(world, "n1")
        await world.quiet(SETTLED_SECONDS - 5)
        assert owned(world, "n1")["reason"] == "TakingOver"
        world.offer("n1", 1)
        await expect_owned(world, "n1", "GPUsOffered")
    assert not world.vgpus()


@scenario(n1=1)
async def test_an_agent_of_an_earlier_release_keeps_its_node_shared(world: World) -> None:
    world.deadline = LONG
    world.start()
    await world.quiet(1)
    world.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].pop("supportsOwned"))
    own(world, "n1")
    await expect_owned(world, "n1", "AgentOutdated")
    assert not world.vgpus()


@scenario(n1=2)
async def test_a_vgpu_that_exists_becomes_static_with_its_holders(world: World) -> None:
    world.start()
    await world.run("a", "0.6")
    (gpuid,), pod = world.vgpus(), the_pod(world, "a")
    uuid = world.vgpu(gpuid)["spec"]["uuid"]
    await taken_over(world, "n1")
    await expect_phases(world, "Active", "Idle")
    await world.until(lambda: not world.placeholders())
    assert world.vgpus()[gpuid] == ["a"]
    assert world.vgpu(gpuid)["spec"]["pool"] == "static"
    assert static_name(uuid) not in world.vgpus()
    assert is_same_pod(world, pod)
    await world.run("b", "0.4")
    assert world.shares_gpu("a", "b")


@scenario(n1=2)
async def test_a_label_that_is_removed_releases_the_free_gpus_and_the_others_later(
    world: World,
) -> None:
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle", "Idle")
    await world.run("a", "0.3")
    label_node(world, "n1", gpus=None)
    await expect_phases(world, "Active")
    found = await expect_owned(world, "n1", "Releasing")
    assert next(iter(world.vgpus())) in found["message"]
    world.share("b", "0.3")
    await expect_pending(world, "b")
    assert world.running("a")
    world.delete("a")
    await expect_no_vgpus(world)
    await expect_owned(world, "n1", "NotRequested")
    assert mode(world, "n1") == "shared"
    world.offer("n1", 2)
    await expect_running(world, "b")
    assert len(world.placeholders()) == 1


@scenario(n1=1, n2=1)
async def test_an_owned_node_that_offers_gpus_again_accepts_no_holder(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle")
    await world.run("a", "0.3", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    world.offer("n1", 1)
    await expect_owned(world, "n1", "GPUsOffered")
    await expect_condition(world, "a", "Allocated", "GPUsOffered")
    world.share("b", "0.3")
    found = await expect_scheduled(world, "b")
    assert found.node == "n2"
    assert world.running("a")
    stop_plugin(world, "n1")
    await expect_owned(world, "n1")
    await expect_condition(world, "a", "Allocated", "Allocated")


@scenario(n1=2)
async def test_a_gpu_that_is_replaced_has_a_vgpu_of_its_own(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle", "Idle")

    def replace(obj: manifests.Raw) -> None:
        obj["spec"]["devices"][1]["uuid"] = gpu_uuid("n1", 7)

    world.server.change(GPUNODES, "n1", "", replace)
    await world.until(lambda: sorted(world.vgpus()) == names("n1", 0, 7))


@scenario(n1=2)
async def test_a_gpu_that_fails_takes_no_holder_and_keeps_its_vgpu(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle", "Idle")

    def fail(obj: manifests.Raw) -> None:
        obj["spec"]["devices"][0] |= {"healthy": False, "message": "XID 79"}

    world.server.change(GPUNODES, "n1", "", fail)
    await world.run("a", "0.5")
    assert world.vgpus()[names("n1", 1)[0]] == ["a"]
    await world.run("b", "0.5")
    assert world.shares_gpu("a", "b")
    await expect_vgpus(world, 2, placeholders=0)


@scenario(n1=1)
async def test_a_node_object_that_is_created_again_is_taken_over_again(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await world.run("a")
    recreate_node(world, "n1")
    await world.until(lambda: owned(world, "n1").get("reason") == "Owned")
    await expect_running(world, "a")
    await expect_vgpus(world, 1, placeholders=0)


@scenario(n1=1)
async def test_a_node_that_is_deleted_takes_its_static_vgpus_with_it(world: World) -> None:
    world.start()
    await taken_over(world, "n1")
    await world.run("a")
    world.lose_node("n1")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_a_cordoned_node_keeps_its_static_vgpus(world: World) -> None:
    world.configure(pool={"policy": "onDemand"})
    world.start()
    await taken_over(world, "n1")
    await expect_phases(world, "Idle")
    cordon(world, "n1")
    await world.quiet(LONG)
    assert vgpu_phases(world) == ["Idle"]


@scenario(n1=1)
async def test_a_vgpu_that_waits_for_a_gpu_of_an_owned_node_gets_a_static_one(
    world: World,
) -> None:
    """Sched had opened a vGPU while the plugin was being stopped."""
    world.start()
    stop_plugin(world, "n1")
    holder = manifests.holder("u", "a", attempt=1)
    await world.quiet(1)
    stale = manifests.vgpu("stale", "n1", holder, phase="Creating", pool="onDemand")
    made = world.share("a", "0.3", id="stale", attempt=1, spec={"nodeName": "n1"})
    holder["demand"] = made["metadata"]["uid"]
    world.server.seed(VGPUS, stale)
    await taken_over(world, "n1")
    await expect_running(world, "a")
    await world.until(lambda: world.vgpus() == {names("n1", 0)[0]: ["a"]})
    assert world.server.all(PODS, "kubeshare-system") == []


@pytest.mark.parametrize(
    "labels",
    [
        {"kubeshare.nthu/family": "vcuda"},
        {"gpushare": "true"},
        {"nvidia-device-enable": "enable"},
    ],
)
def test_a_node_of_another_family_is_closed_to_sharepods_unless_mixed(
    labels: dict[str, str],
) -> None:
    @scenario(n1=1)
    async def run(world: World) -> None:
        world.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update(labels))
        world.start()
        await taken_over(world, "n1")
        world.share("a", "0.3")
        await expect_pending(world, "a", "dedicated to")
        world.plain("b", "0.3")
        await expect_pending(world, "b", "dedicated to")
        (gpuid,) = world.vgpus()
        world.share("c", "0.3", id=gpuid, spec={"nodeName": "n1"})
        await expect_condition(world, "c", "Allocated", "NoRoom")
        world.configure(owned={"mixed": True})
        await expect_running(world, "a", "b")

    run()


@scenario(n1=1)
async def test_the_family_of_a_node_that_is_shared_with_kubernetes_means_nothing(
    world: World,
) -> None:
    label_node(world, "n1", family="gpushare")
    world.start()
    await world.run("a", "0.3")
