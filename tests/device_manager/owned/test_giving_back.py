"""Giving an owned node back while pods share its GPUs."""

import pytest

from expectations.pods import expect_running
from expectations.vgpus import (
    expect_mode,
    expect_no_vgpus,
    expect_owned,
    expect_phases,
    expect_placeholders,
    expect_released,
)
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import (
    cordon,
    label_node,
    own,
    report_unrecorded,
    serve_by_claims,
    stop_dra_driver,
)
from fakes.cluster.state import is_same_pod, mode, owned, the_pod
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.device_manager.placeholder.gpu_selector import SELECTION_SECONDS
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS
from kubeshare.simulator.control_tier.objects import gpu_uuid

LONG = 5 * SETTLED_SECONDS
SYSTEM = "kubeshare-system"


def gpus_of(cluster: FakeCluster) -> dict[str, str]:
    """Name of each placeholder or filler -> the UUID that it has."""
    return {
        pod["metadata"]["name"]: cluster.actors.given.get(pod["metadata"]["uid"], "")
        for pod in cluster.server.all(PODS, SYSTEM)
    }


async def hold(cluster: FakeCluster, node: str, *requests: str) -> list[str]:
    """An owned node whose GPUs are held by SharePods ``a``, ``b``, …; the vGPUs."""
    cluster.deadline = LONG
    own(cluster, node)
    await expect_owned(cluster, node)
    names = "abcdef"[: len(requests)]
    for name, request in zip(names, requests, strict=True):
        await cluster.run(name, request)
    return [gpuid for gpuid, held in cluster.vgpus().items() if held]


def assert_kept(cluster: FakeCluster, held: list[str]) -> None:
    """Each vGPU has a placeholder that has its GPU, and there is no other one."""
    wanted = {f"kubeshare-vgpu-{name}": cluster.vgpu(name)["spec"]["uuid"] for name in held}
    assert gpus_of(cluster) == wanted


@pytest.mark.parametrize("last_first", [False, True])
def test_the_gpus_in_use_get_placeholders_whatever_the_plugin_chooses(last_first: bool) -> None:
    @scenario(n1=4)
    async def run(cluster: FakeCluster) -> None:
        cluster.start()
        held = await hold(cluster, "n1", "0.7", "0.7")
        pods = [the_pod(cluster, name) for name in "ab"]
        cluster.actors.last_first = not last_first
        cordon(cluster, "n1")
        label_node(cluster, "n1", gpus=None)
        await expect_owned(cluster, "n1", "Releasing")
        cluster.offer("n1", 4)
        await expect_mode(cluster, "n1", "shared")
        await expect_placeholders(cluster, len(held))
        assert_kept(cluster, held)
        assert {cluster.vgpu(name)["spec"]["pool"] for name in held} == {"onDemand"}
        assert all(is_same_pod(cluster, pod) for pod in pods)
        cordon(cluster, "n1", cordoned=False)
        cluster.native_pod("whole", 2)
        await expect_running(cluster, "whole")
        await cluster.run("c", "0.3")
        assert len(cluster.vgpus()) == 2
        for name in "abc":
            cluster.delete(name)
        await expect_no_vgpus(cluster)

    run()


@scenario(n1=2)
async def test_a_node_that_is_not_cordoned_says_what_to_do(cluster: FakeCluster) -> None:
    cluster.start()
    await hold(cluster, "n1", "0.7")
    label_node(cluster, "n1", gpus=None)
    found = await expect_owned(cluster, "n1", "Releasing")
    assert "kubectl cordon n1" in found["message"]
    cluster.offer("n1", 2)
    found = await expect_owned(cluster, "n1", "GPUsOffered")
    assert "kubectl cordon n1" in found["message"]
    await cluster.quiet(LONG)
    assert cluster.placeholders() == []
    cordon(cluster, "n1")
    await expect_mode(cluster, "n1", "shared")


@scenario(n1=2)
async def test_a_gpu_that_another_pod_has_stays_fenced_and_the_others_get_placeholders(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    first, second = await hold(cluster, "n1", "0.7", "0.7")
    label_node(cluster, "n1", gpus=None)
    cluster.offer("n1", 2)
    await expect_owned(cluster, "n1", "GPUsOffered")
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    taken = cluster.actors.given[the_pod(cluster, "whole")["metadata"]["uid"]]
    lost = next(name for name in (first, second) if cluster.vgpu(name)["spec"]["uuid"] == taken)
    kept = next(name for name in (first, second) if name != lost)

    def report(obj: manifests.Raw) -> None:
        for device in obj["spec"]["devices"]:
            device["inUse"] = device["uuid"] == taken

    cluster.server.change(GPUNODES, "n1", "", report)
    cordon(cluster, "n1")
    await cluster.until(lambda: cluster.vgpu(kept)["spec"]["pool"] == "onDemand")
    await cluster.quiet(LONG)
    assert_kept(cluster, [kept])
    found = owned(cluster, "n1")
    assert (found["reason"], lost in found["message"]) == ("Releasing", True)
    assert mode(cluster, "n1") == "owned"


@scenario(n1=2)
async def test_no_gpu_is_kept_for_long_while_no_node_agent_reports(cluster: FakeCluster) -> None:
    cluster.start()
    held = await hold(cluster, "n1", "0.7")
    cluster.actors.node_agents = False
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus=None)
    cluster.offer("n1", 2)
    await expect_placeholders(cluster, 2)
    await cluster.quiet(SELECTION_SECONDS + 10)
    assert cluster.placeholders() == []
    cluster.actors.node_agents = True
    await expect_mode(cluster, "n1", "shared")
    assert_kept(cluster, held)


@scenario(n1=2)
async def test_a_node_that_is_asked_for_again_keeps_what_it_has(cluster: FakeCluster) -> None:
    cluster.start()
    held = await hold(cluster, "n1", "0.7", "0.7")
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus=None)
    cluster.offer("n1", 2)
    await expect_placeholders(cluster, 2)
    label_node(cluster, "n1", gpus="owned")
    await expect_owned(cluster, "n1", "GPUsOffered")
    cluster.offer("n1", 0)
    await expect_owned(cluster, "n1")
    await expect_placeholders(cluster, 0)
    assert sorted(cluster.vgpus()) == sorted(held)
    assert {cluster.vgpu(name)["spec"]["pool"] for name in held} == {"static"}


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0, 2.0])
def test_a_killed_device_manager_goes_on(seconds: float) -> None:
    @scenario(n1=3)
    async def run(cluster: FakeCluster) -> None:
        cluster.start()
        held = await hold(cluster, "n1", "0.7", "0.7")
        cluster.actors.last_first = True
        cordon(cluster, "n1")
        label_node(cluster, "n1", gpus=None)
        cluster.offer("n1", 3)
        while mode(cluster, "n1") == "owned":
            await cluster.quiet(seconds)
            await cluster.kill("devices")
            await cluster.quiet(0.5)
            cluster.start("devices")
            await cluster.quiet(0.05)
        await expect_placeholders(cluster, 2)
        assert_kept(cluster, held)

    run()


@scenario(n1=2)
async def test_a_dra_driver_gets_claims_for_the_gpus_in_use(cluster: FakeCluster) -> None:
    cluster.start()
    held = await hold(cluster, "n1", "0.7")
    pod = the_pod(cluster, "a")
    label_node(cluster, "n1", gpus=None)
    cordon(cluster, "n1")
    serve_by_claims(cluster, "n1")
    await expect_mode(cluster, "n1", "shared")
    assert_kept(cluster, held)
    (claim,) = cluster.server.all(RESOURCE_CLAIMS, SYSTEM)
    uuid = cluster.vgpu(held[0])["spec"]["uuid"]
    assert uuid in str(claim["spec"])
    assert cluster.vgpu(held[0])["spec"]["selectedUuid"] == uuid
    assert is_same_pod(cluster, pod)


@scenario(n1=2)
async def test_a_dra_node_is_taken_over_under_the_pods_that_share_it(cluster: FakeCluster) -> None:
    cluster.deadline = LONG
    first, _ = serve_by_claims(cluster, "n1")
    cluster.start()
    await cluster.run("a", "0.7")
    pod, (gpuid,) = the_pod(cluster, "a"), cluster.vgpus()
    label_node(cluster, "n1", gpus="owned")
    found = await expect_owned(cluster, "n1", "GPUsOffered")
    assert "kubectl cordon n1" in found["message"]
    assert len(cluster.placeholders()) == 1
    cordon(cluster, "n1")
    await expect_owned(cluster, "n1", "TakingOver")
    await expect_placeholders(cluster, 0)
    await cluster.until(lambda: not cluster.server.all(RESOURCE_CLAIMS, SYSTEM))
    await cluster.until(lambda: "dra-kubelet-plugin=false" in owned(cluster, "n1")["message"])
    assert cluster.vgpu(gpuid)["spec"]["pool"] == "static"
    stop_dra_driver(cluster, "n1")
    await expect_owned(cluster, "n1")
    cordon(cluster, "n1", cordoned=False)
    await expect_phases(cluster, "Active", "Idle")
    assert cluster.vgpus()[gpuid] == ["a"]
    assert is_same_pod(cluster, pod)
    await cluster.run("b", "0.3", id=gpuid, spec={"nodeName": "n1"})
    assert cluster.vgpu(gpuid)["spec"]["uuid"] == first == gpu_uuid("n1", 0)


@scenario(n1=2)
async def test_a_native_pod_with_a_claim_delays_the_takeover_of_a_dra_node(
    cluster: FakeCluster,
) -> None:
    cluster.deadline = LONG
    serve_by_claims(cluster, "n1")
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    native = manifests.pod("claims", nodeName="n1", resourceClaims=claims)
    native["metadata"]["namespace"] = "default"
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.server.seed(PODS, native | {"status": {"phase": "Running"}})
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus="owned")
    found = await expect_owned(cluster, "n1", "GPUsInUse")
    assert "default/claims" in found["message"]
    await cluster.quiet(LONG)
    assert len(cluster.placeholders()) == 1
    cluster.server.remove(PODS, "claims", "default")
    await expect_placeholders(cluster, 0)


@scenario(n1=2)
async def test_a_placeholder_is_kept_that_a_watch_does_not_report_in_time(
    cluster: FakeCluster,
) -> None:
    """The node has recorded it, and the device manager learns that after its time is up."""
    cluster.start()
    (gpuid,) = await hold(cluster, "n1", "0.7")
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus=None)
    cluster.offer("n1", 2)
    name = f"kubeshare-vgpu-{gpuid}"
    while cluster.pod(name, SYSTEM) is None:
        await cluster.quiet(0.001)
    cluster.server.mute_watches()
    placeholder = cluster.pod(name, SYSTEM)
    await expect_mode(cluster, "n1", "shared")
    assert placeholder is not None
    assert cluster.vgpu(gpuid)["spec"]["placeholderUid"] == placeholder["metadata"]["uid"]
    assert_kept(cluster, [gpuid])


@scenario(n1=1)
async def test_a_node_is_given_back_whose_last_holder_no_watch_showed(
    cluster: FakeCluster,
) -> None:
    """The device manager knows the holder by its own write, and its watch of vGPUs is broken."""
    cluster.start()
    cluster.deadline = LONG
    own(cluster, "n1")
    await expect_phases(cluster, "Idle")
    for watcher in cluster.server.storage.watchers:
        watcher.mute = watcher.plural == VGPUS.plural
    (name,) = cluster.vgpus()
    cluster.share("a", "0.7", id=cluster.vgpu(name)["spec"]["gpuid"], spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    label_node(cluster, "n1", gpus=None)
    await expect_owned(cluster, "n1", "Releasing")
    cluster.end("a")
    await expect_released(cluster, "a")
    cluster.server.expire_watches()
    await expect_mode(cluster, "n1", "shared")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_node_is_not_given_back_while_a_pod_runs_that_the_record_lacks(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    [gpuid] = await hold(cluster, "n1", "0.7")
    cluster.delete("a")
    await expect_released(cluster, "a")
    cluster.invariants.restored = True
    report_unrecorded(cluster, "default/b")
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus=None)
    await expect_owned(cluster, "n1", "Releasing")
    await cluster.quiet(LONG)
    assert cluster.vgpu(gpuid)["spec"]["pool"] == "static"
    assert mode(cluster, "n1") == "owned"
    report_unrecorded(cluster)
    await expect_mode(cluster, "n1", "shared")
