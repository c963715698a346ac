"""Nodes whose GPUs KubeShare owns: takeover, static vGPUs, giving back."""

import pytest

from expectations.pods import expect_condition, expect_event, expect_running
from expectations.scheduling import expect_pending, expect_scheduled
from expectations.vgpus import (
    expect_holders,
    expect_mode,
    expect_no_vgpus,
    expect_owned,
    expect_phases,
    expect_placeholders,
    expect_vgpus,
)
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster_objects import GIB
from fakes.cluster.disruptions import cordon, label_node, own, recreate_node, stop_plugin
from fakes.cluster.state import is_same_pod, mode, owned, the_pod, vgpu_phases
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import EVENTS, NODES, PODS
from kubeshare.simulator.control_tier.objects import gpu_uuid

LONG = 5 * SETTLED_SECONDS


def names(node: str, *indices: int) -> list[str]:
    """The names of the static vGPUs of GPUs."""
    return sorted(static_name(gpu_uuid(node, index)) for index in indices)


def offer(cluster: FakeCluster, resource: str, amount: str) -> None:
    """The kubelet of ``n1`` offers so much of a resource."""
    found = {resource: amount}
    cluster.server.change(
        NODES, "n1", "", lambda obj: obj["status"].setdefault("allocatable", {}).update(found)
    )


async def taken_over(cluster: FakeCluster, *nodes: str) -> None:
    cluster.deadline = LONG
    own(cluster, *nodes)
    for node in nodes:
        await expect_owned(cluster, node)


@scenario(n1=2)
async def test_each_gpu_of_an_owned_node_has_a_vgpu_without_a_placeholder(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")
    assert sorted(cluster.vgpus()) == names("n1", 0, 1)
    found = cluster.vgpu(names("n1", 0)[0])["spec"]
    assert found["pool"] == "static"
    assert (found["model"], found["memoryBytes"]) == ("V100", 16 * GIB)
    assert mode(cluster, "n1") == "owned"
    await cluster.quiet(LONG)
    assert cluster.placeholders() == []
    assert vgpu_phases(cluster) == ["Idle", "Idle"]
    await expect_event(cluster, "n1", "Owned")


@scenario(n1=2, n2=2)
async def test_a_node_that_is_not_asked_for_is_not_written(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.quiet(LONG)
    writes = [each for each in cluster.server.requests if each.resource == "gpunodes/status"]
    assert writes == []


@scenario(n1=2)
async def test_a_selector_of_the_configuration_asks_for_a_node(cluster: FakeCluster) -> None:
    cluster.deadline = LONG
    cluster.configure(owned={"selectors": ["SharedGPU=true,zone=a", "gpushare=true"]})
    stop_plugin(cluster, "n1")
    cluster.start()
    await cluster.quiet(LONG)
    assert not cluster.vgpus()
    found = {"gpushare": "true"}
    cluster.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update(found))
    await expect_owned(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")
    label_node(cluster, "n1", gpus="shared")
    await expect_no_vgpus(cluster)


@pytest.mark.parametrize("policy", ["locality", "binpack", "topology"])
def test_every_policy_places_sharepods_on_an_owned_node(policy: str) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.policy = policy
        cluster.start()
        await taken_over(cluster, "n1")
        await expect_phases(cluster, "Idle", "Idle")
        cluster.share("a", "0.5")
        await expect_running(cluster, "a")
        cluster.share("b", "0.5")
        await expect_running(cluster, "b")
        assert cluster.shares_gpu("a", "b")
        cluster.share("c", "1", memory="16Gi")
        await expect_running(cluster, "c")
        await expect_holders(cluster, ["a", "b"], ["c"])
        assert cluster.placeholders() == []
        cluster.delete("a")
        cluster.delete("b")
        cluster.delete("c")
        await expect_phases(cluster, "Idle", "Idle")

    run()


@scenario(n1=4)
async def test_topology_takes_linked_gpus_of_an_owned_node(cluster: FakeCluster) -> None:
    cluster.policy = "topology"
    cluster.start()
    await taken_over(cluster, "n1")
    cluster.link("n1", gpu_1_3="NV2")
    await expect_phases(cluster, *["Idle"] * 4)
    await cluster.run("a", "1", count=2, memory="16Gi")
    held = sorted(gpuid for gpuid, found in cluster.vgpus().items() if found)
    assert held == names("n1", 1, 3)


@scenario(n1=1)
async def test_a_node_that_offers_gpus_is_not_taken_over_and_stays_as_it_is(
    cluster: FakeCluster,
) -> None:
    cluster.deadline = LONG
    label_node(cluster, "n1", gpus="owned")
    cluster.start()
    found = await expect_owned(cluster, "n1", "GPUsOffered")
    assert "kubectl cordon n1" in found["message"]
    assert "nvidia.com/gpu.deploy.device-plugin=false" in found["message"]
    await expect_event(cluster, "n1", "GPUsOffered")
    await cluster.run("a")
    assert len(cluster.placeholders()) == 1
    assert mode(cluster, "n1") == "shared"


@scenario(n1=1)
async def test_gpus_that_a_dra_driver_offers_are_not_taken_over(cluster: FakeCluster) -> None:
    cluster.deadline = LONG
    cluster.start()
    await cluster.quiet(1)
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].update(draCount=1))
    own(cluster, "n1")
    found = await expect_owned(cluster, "n1", "GPUsOffered")
    assert "DRA driver" in found["message"]
    assert not cluster.vgpus()


@scenario(n1=2)
async def test_gpus_that_a_native_pod_uses_are_not_taken_over_before_it_has_ended(
    cluster: FakeCluster,
) -> None:
    cluster.deadline = LONG
    cluster.start()
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    own(cluster, "n1")
    found = await expect_owned(cluster, "n1", "GPUsInUse")
    assert "default/whole" in found["message"]
    [event] = await expect_event(cluster, "n1", "GPUsInUse")
    assert "without KubeShare: 1 pod. Delete" in event
    await cluster.quiet(LONG)
    assert not cluster.vgpus()
    cluster.end("whole")
    await expect_phases(cluster, "Idle", "Idle")


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "aliyun.com/gpu-mem"]
)
def test_parts_of_gpus_that_another_plugin_hands_out_delay_the_takeover(resource: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        cluster.deadline = LONG
        own(cluster, "n1")
        offer(cluster, resource, "8")
        pod = manifests.pod("part", {resource: "1"}, nodeName="n1")
        pod["metadata"]["namespace"] = "default"
        cluster.server.seed(PODS, pod | {"status": {"phase": "Running"}})
        cluster.start()
        found = await expect_owned(cluster, "n1", "GPUsOffered")
        assert resource in found["message"]
        offer(cluster, resource, "0")
        found = await expect_owned(cluster, "n1", "GPUsInUse")
        assert "default/part" in found["message"]
        assert not cluster.vgpus()
        cluster.server.remove(PODS, "part", "default")
        await expect_phases(cluster, "Idle")

    run()


@scenario(n1=1)
async def test_the_memory_that_kubeshare_offers_is_no_other_plugin(cluster: FakeCluster) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    offer(cluster, "aliyun.com/gpu-mem", "16")
    await cluster.quiet(LONG)
    assert owned(cluster, "n1")["reason"] == "Owned"
    offer(cluster, "nvidia.com/gpu.shared", "8")
    await expect_owned(cluster, "n1", "GPUsOffered")


@scenario(n1=1)
async def test_a_pod_that_may_have_a_gpu_by_a_claim_delays_the_takeover(
    cluster: FakeCluster,
) -> None:
    """The slices of a DRA driver that was stopped are gone, the claims of its pods are not."""
    cluster.deadline = LONG
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    pod = manifests.pod("claims", nodeName="n1", resourceClaims=claims)
    pod["metadata"]["namespace"] = "default"
    cluster.server.seed(PODS, pod | {"status": {"phase": "Running"}})
    own(cluster, "n1")
    cluster.start()
    found = await expect_owned(cluster, "n1", "GPUsInUse")
    assert "default/claims" in found["message"]
    assert not cluster.vgpus()
    cluster.server.remove(PODS, "claims", "default")
    await expect_phases(cluster, "Idle")
    cluster.server.seed(PODS, pod | {"status": {"phase": "Running"}})
    await cluster.quiet(LONG)
    assert owned(cluster, "n1")["reason"] == "Owned"


@scenario(n1=1)
async def test_a_plugin_that_restarts_is_no_takeover(cluster: FakeCluster) -> None:
    label_node(cluster, "n1", gpus="owned")
    cluster.start()
    await expect_owned(cluster, "n1", "GPUsOffered")
    for _ in range(3):
        stop_plugin(cluster, "n1")
        await cluster.quiet(SETTLED_SECONDS - 5)
        assert owned(cluster, "n1")["reason"] == "TakingOver"
        cluster.offer("n1", 1)
        await expect_owned(cluster, "n1", "GPUsOffered")
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_an_agent_of_an_earlier_release_keeps_its_node_shared(cluster: FakeCluster) -> None:
    cluster.deadline = LONG
    cluster.start()
    await cluster.quiet(1)
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].pop("supportsOwned"))
    own(cluster, "n1")
    await expect_owned(cluster, "n1", "AgentOutdated")
    assert not cluster.vgpus()


@scenario(n1=2)
async def test_a_vgpu_that_exists_becomes_static_with_its_holders(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a", "0.6")
    (gpuid,), pod = cluster.vgpus(), the_pod(cluster, "a")
    uuid = cluster.vgpu(gpuid)["spec"]["uuid"]
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Active", "Idle")
    await expect_placeholders(cluster, 0)
    assert cluster.vgpus()[gpuid] == ["a"]
    assert cluster.vgpu(gpuid)["spec"]["pool"] == "static"
    assert static_name(uuid) not in cluster.vgpus()
    assert is_same_pod(cluster, pod)
    await cluster.run("b", "0.4")
    assert cluster.shares_gpu("a", "b")


@scenario(n1=2)
async def test_a_label_that_is_removed_releases_the_free_gpus_and_the_others_later(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")
    await cluster.run("a", "0.3")
    label_node(cluster, "n1", gpus=None)
    await expect_phases(cluster, "Active")
    found = await expect_owned(cluster, "n1", "Releasing")
    assert next(iter(cluster.vgpus())) in found["message"]
    cluster.share("b", "0.3")
    await expect_pending(cluster, "b")
    assert cluster.running("a")
    cluster.delete("a")
    await expect_no_vgpus(cluster)
    await expect_owned(cluster, "n1", "NotRequested")
    assert mode(cluster, "n1") == "shared"
    cluster.offer("n1", 2)
    await expect_running(cluster, "b")
    assert len(cluster.placeholders()) == 1


@scenario(n1=1, n2=1)
async def test_an_owned_node_that_offers_gpus_again_accepts_no_holder(cluster: FakeCluster) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle")
    await cluster.run("a", "0.3", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    cluster.offer("n1", 1)
    await expect_owned(cluster, "n1", "GPUsOffered")
    await expect_condition(cluster, "a", "Allocated", "GPUsOffered")
    cluster.share("b", "0.3")
    found = await expect_scheduled(cluster, "b")
    assert found.node == "n2"
    assert cluster.running("a")
    stop_plugin(cluster, "n1")
    await expect_owned(cluster, "n1")
    await expect_condition(cluster, "a", "Allocated", "Allocated")


@scenario(n1=1)
async def test_a_gpu_that_is_given_out_twice_is_told_until_only_one_has_it(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await cluster.run("a", "0.3")
    [gpuid] = cluster.vgpus()
    cluster.offer("n1", 1)
    found = await expect_owned(cluster, "n1", "GPUsOffered")
    assert "`kubectl cordon n1` and `kubectl label node n1" in found["message"]
    assert found["message"].endswith(f"evict` says otherwise: {gpuid}")
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    await expect_condition(cluster, "a", "Allocated", "GPUsInUse")
    assert "given out twice" in str(cluster.vgpu(gpuid)["status"]["conditions"])
    assert owned(cluster, "n1")["message"].endswith("GPUs of this node have: default/whole")
    await expect_event(cluster, gpuid, "GPUsInUse")
    # What users of the vGPU read names no pods of others.
    read = [cluster.vgpu(gpuid), cluster.sharepod("a"), cluster.server.all(EVENTS)]
    assert "default/whole" not in str(read)
    assert cluster.running("a")
    assert cluster.vgpus() == {gpuid: ["a"]}
    stop_plugin(cluster, "n1")
    await expect_owned(cluster, "n1", "GPUsInUse")
    await expect_condition(cluster, "a", "Allocated", "GPUsInUse")
    cluster.end("whole")
    await expect_owned(cluster, "n1")
    await expect_condition(cluster, "a", "Allocated", "Allocated")


@scenario(n1=2)
async def test_a_gpu_that_is_replaced_has_a_vgpu_of_its_own(cluster: FakeCluster) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")

    def replace(obj: manifests.Raw) -> None:
        obj["spec"]["devices"][1]["uuid"] = gpu_uuid("n1", 7)

    cluster.server.change(GPUNODES, "n1", "", replace)
    await cluster.until(lambda: sorted(cluster.vgpus()) == names("n1", 0, 7))


@scenario(n1=2)
async def test_a_gpu_that_fails_takes_no_holder_and_keeps_its_vgpu(cluster: FakeCluster) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")

    def fail(obj: manifests.Raw) -> None:
        obj["spec"]["devices"][0] |= {"healthy": False, "message": "XID 79"}

    cluster.server.change(GPUNODES, "n1", "", fail)
    await cluster.run("a", "0.5")
    assert cluster.vgpus()[names("n1", 1)[0]] == ["a"]
    await cluster.run("b", "0.5")
    assert cluster.shares_gpu("a", "b")
    await expect_vgpus(cluster, 2, placeholders=0)


@scenario(n1=1)
async def test_a_node_object_that_is_created_again_is_taken_over_again(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await cluster.run("a")
    recreate_node(cluster, "n1")
    await cluster.until(lambda: owned(cluster, "n1").get("reason") == "Owned")
    await expect_running(cluster, "a")
    await expect_vgpus(cluster, 1, placeholders=0)


@scenario(n1=1)
async def test_a_node_that_is_deleted_takes_its_static_vgpus_with_it(cluster: FakeCluster) -> None:
    cluster.start()
    await taken_over(cluster, "n1")
    await cluster.run("a")
    cluster.lose_node("n1")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_cordoned_node_keeps_its_static_vgpus(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "onDemand"})
    cluster.start()
    await taken_over(cluster, "n1")
    await expect_phases(cluster, "Idle")
    cordon(cluster, "n1")
    await cluster.quiet(LONG)
    assert vgpu_phases(cluster) == ["Idle"]


@scenario(n1=1)
async def test_a_vgpu_that_waits_for_a_gpu_of_an_owned_node_gets_a_static_one(
    cluster: FakeCluster,
) -> None:
    """Sched had opened a vGPU while the plugin was being stopped."""
    cluster.start()
    stop_plugin(cluster, "n1")
    holder = manifests.holder("u", "a", attempt=1)
    await cluster.quiet(1)
    stale = manifests.vgpu("stale", "n1", holder, phase="Creating", pool="onDemand")
    made = cluster.share("a", "0.3", id="stale", attempt=1, spec={"nodeName": "n1"})
    holder["demand"] = made["metadata"]["uid"]
    cluster.server.seed(VGPUS, stale)
    await taken_over(cluster, "n1")
    await expect_running(cluster, "a")
    await cluster.until(lambda: cluster.vgpus() == {names("n1", 0)[0]: ["a"]})
    await expect_event(cluster, "stale", "NodeOwned")
    assert cluster.server.all(PODS, "kubeshare-system") == []


@pytest.mark.parametrize(
    "labels",
    [
        {"kubeshare.nthu/family": "vcuda"},
        {"gpushare": "true"},
        {"cgpu": "true"},
        {"nvidia-device-enable": "enable"},
    ],
)
def test_a_node_of_another_family_is_closed_to_sharepods_unless_mixed(
    labels: dict[str, str],
) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        cluster.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update(labels))
        cluster.start()
        await taken_over(cluster, "n1")
        cluster.share("a", "0.3")
        await expect_pending(cluster, "a", "dedicated to")
        cluster.plain("b", "0.3")
        await expect_pending(cluster, "b", "dedicated to")
        (gpuid,) = cluster.vgpus()
        cluster.share("c", "0.3", id=gpuid, spec={"nodeName": "n1"})
        await expect_condition(cluster, "c", "Allocated", "NoRoom")
        cluster.configure(owned={"mixed": True})
        await expect_running(cluster, "a", "b")

    run()


@scenario(n1=1)
async def test_the_family_of_a_node_that_is_shared_with_kubernetes_means_nothing(
    cluster: FakeCluster,
) -> None:
    label_node(cluster, "n1", family="gpushare")
    cluster.start()
    await cluster.run("a", "0.3")


@scenario(n1=1)
async def test_a_record_without_vgpus_and_without_a_wish_is_taken_back(
    cluster: FakeCluster,
) -> None:
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj.update(status={"mode": "owned"}))
    cluster.start("devices")
    await expect_mode(cluster, "n1", "shared")
    assert owned(cluster, "n1")["reason"] == "NotRequested"


@scenario(n1=1)
async def test_a_node_that_is_made_anew_offers_no_gpus_for_its_own_time(
    cluster: FakeCluster,
) -> None:
    cluster.start("devices")
    own(cluster, "n1")
    await cluster.quiet(SETTLED_SECONDS - 10)
    recreate_node(cluster, "n1")
    own(cluster, "n1")
    await cluster.quiet(SETTLED_SECONDS - 10)
    assert mode(cluster, "n1") == "shared"
    await expect_mode(cluster, "n1", "owned", seconds=30)
