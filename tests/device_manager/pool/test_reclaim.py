"""Idle vGPUs are reclaimed for pending pods that request whole GPUs only."""

from expectations.pods import expect_any_running, expect_running
from expectations.vgpus import expect_idle_vgpus, expect_no_vgpus
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import serve_by_claims
from fakes.cluster.state import vgpu_phases
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS, RESOURCE_CLAIMS

SECONDS = 5.0
"""Time within which a pod gets the GPU of a reclaimed vGPU."""


def made(cluster: FakeCluster) -> int:
    """The number of vGPUs that the programs have created."""
    return sum(
        request.verb == "create" and request.resource == "vgpus"
        for request in cluster.server.requests
    )


def idle(cluster: FakeCluster) -> int:
    return vgpu_phases(cluster).count("Idle")


async def warmed(cluster: FakeCluster, count: int, **pool: object) -> None:
    cluster.configure(pool={"policy": "reservation", **pool})
    cluster.start()
    await expect_idle_vgpus(cluster, count)


@scenario(n1=2)
async def test_a_pod_that_waits_for_a_whole_gpu_gets_that_of_an_idle_vgpu(
    cluster: FakeCluster,
) -> None:
    await warmed(cluster, 2, warm=2)
    before = cluster.vgpus().keys()
    cluster.native_pod("native")
    await expect_running(cluster, "native", seconds=SECONDS)
    assert idle(cluster) == 1
    [reclaimed] = before - cluster.vgpus().keys()
    words = "no pod shares it, and one waits for a whole GPU: it goes back to node n1"
    await cluster.until(lambda: any(each.endswith(words) for each in cluster.events(reclaimed)))


@scenario(n1=2)
async def test_warm_up_and_yield_do_not_play_ping_pong(cluster: FakeCluster) -> None:
    """Each GPU is moved once when a pod is created, and once when it is gone."""
    await warmed(cluster, 2, warm=2)
    assert made(cluster) == 2
    cluster.native_pod("native")
    await expect_running(cluster, "native", seconds=SECONDS)
    for name in ("second", "third"):
        cluster.native_pod(name)
    await expect_any_running(cluster, "second", "third", seconds=SECONDS)
    await cluster.quiet(40)
    assert made(cluster) == 2
    cluster.server.remove(PODS, "third" if cluster.running("second") else "second", "default")
    cluster.server.remove(PODS, "native", "default")
    await expect_idle_vgpus(cluster, 1)
    await cluster.quiet(40)
    assert made(cluster) == 3


@scenario(n1=2)
async def test_reserved_ones_give_way_to_no_pod(cluster: FakeCluster) -> None:
    await warmed(cluster, 2, minimum=1, warm=2)
    cluster.native_pod("native")
    await expect_running(cluster, "native", seconds=SECONDS)
    cluster.native_pod("another")
    await cluster.quiet(40)
    assert not cluster.running("another")
    assert idle(cluster) == 1
    assert made(cluster) == 2


@scenario(n1=1)
async def test_a_vgpu_in_use_gives_way_to_no_pod(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation"})
    cluster.start()
    await cluster.run("a")
    cluster.native_pod("native")
    await cluster.quiet(40)
    assert cluster.running("a")
    cluster.delete("a")
    await expect_running(cluster, "native", seconds=SECONDS)


@scenario(n1=1, n2=1)
async def test_none_gives_way_to_a_pod_that_could_not_run_on_its_node(cluster: FakeCluster) -> None:
    await warmed(cluster, 2, warm=1)
    cluster.native_pod("native", nodeSelector={"kubernetes.io/hostname": "n3"})
    await cluster.quiet(60)
    assert idle(cluster) == 2
    cluster.native_pod("picky", nodeSelector={"kubernetes.io/hostname": "n2"})
    await expect_running(cluster, "picky", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in cluster.server.all(VGPUS)] == ["n1"]


@scenario(n1=2, n2=1)
async def test_as_many_give_way_as_a_pod_asks_for_and_none_in_vain(cluster: FakeCluster) -> None:
    await warmed(cluster, 3, warm=2)
    cluster.native_pod("wide", gpus=3)
    await cluster.quiet(60)
    assert idle(cluster) == 3
    cluster.native_pod("two", gpus=2)
    await expect_running(cluster, "two", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in cluster.server.all(VGPUS)] == ["n2"]


@scenario(n1=1)
async def test_a_pod_that_goes_before_it_got_the_gpu_lets_it_be_made_warm_again(
    cluster: FakeCluster,
) -> None:
    await warmed(cluster, 1, warm=1)
    cluster.actors.binds_whole = False
    cluster.native_pod("native")
    await expect_no_vgpus(cluster, seconds=SECONDS)
    await cluster.quiet(60)
    assert not cluster.vgpus(), "it is kept free for the pod that waits"
    cluster.actors.binds_whole = True
    cluster.server.remove(PODS, "native", "default")
    await expect_idle_vgpus(cluster, 1)


@scenario(n1=1)
async def test_a_cordoned_node_does_not_count(cluster: FakeCluster) -> None:
    cluster.add_node("n2", 1)
    await warmed(cluster, 2, warm=1)
    cluster.server.change(NODES, "n2", "", lambda obj: obj["spec"].update(unschedulable=True))
    cluster.native_pod("native")
    await expect_running(cluster, "native", seconds=SECONDS)


@scenario(n1=1, n2=1)
async def test_none_gives_way_on_a_node_without_room_for_the_pod(cluster: FakeCluster) -> None:
    await warmed(cluster, 2, warm=1)
    short = {WHOLE_GPU_RESOURCE: "1", "cpu": "1"}
    cluster.server.change(NODES, "n1", "", lambda obj: obj["status"].update(allocatable=short))
    wide = {WHOLE_GPU_RESOURCE: "1", "cpu": "4"}
    cluster.native_pod("native", containers=[{"name": "main", "resources": {"limits": wide}}])
    await expect_running(cluster, "native", seconds=SECONDS)
    assert [each["spec"]["nodeName"] for each in cluster.server.all(VGPUS)] == ["n1"]


def claim(
    cluster: FakeCluster, name: str, device_class: str = "gpu.nvidia.com", **exactly: object
) -> None:
    """A claim of a user."""
    request = {"name": "r", "exactly": {"deviceClassName": device_class, **exactly}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"devices": {"requests": [request]}}
    cluster.server.seed(RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})


def pod_with_claim(cluster: FakeCluster, name: str, **claim: object) -> None:
    """A pod that kube-scheduler can bind to no node, for want of what its claim asks for."""
    claims = [{"name": "c", **(claim or {"resourceClaimName": name})}]
    pod = manifests.pod(name, resourceClaims=claims)
    pod["metadata"]["namespace"] = "default"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [condition]}
    cluster.actors.binds_whole = False
    cluster.server.seed(PODS, pod | {"status": status})


@scenario(n1=2, n2=1)
async def test_idle_vgpus_yield_to_a_pod_that_waits_by_a_claim(cluster: FakeCluster) -> None:
    serve_by_claims(cluster, "n1")
    await warmed(cluster, 3, warm=2)
    claim(cluster, "native")
    pod_with_claim(cluster, "native")
    await cluster.until(lambda: idle(cluster) == 2, SECONDS)
    await cluster.quiet(40)
    nodes = sorted(vgpu["spec"]["nodeName"] for vgpu in cluster.server.all(VGPUS))
    assert nodes == ["n1", "n2"]


@scenario(n1=2)
async def test_a_claim_of_a_template_and_a_count_are_read(cluster: FakeCluster) -> None:
    serve_by_claims(cluster, "n1")
    await warmed(cluster, 2, warm=2)
    pod_with_claim(cluster, "native", resourceClaimTemplateName="template")
    await cluster.quiet(40)
    assert idle(cluster) == 2
    claim(cluster, "made", count=2)
    made = [{"name": "c", "resourceClaimName": "made"}]
    cluster.server.change(
        PODS, "native", "default", lambda pod: pod["status"].update(resourceClaimStatuses=made)
    )
    await expect_no_vgpus(cluster)


@scenario(n1=2)
async def test_none_yields_to_a_pod_whose_claim_is_for_another_device(cluster: FakeCluster) -> None:
    serve_by_claims(cluster, "n1")
    await warmed(cluster, 2, warm=2)
    claim(cluster, "nic", "nics.example.com")
    pod_with_claim(cluster, "nic")
    await cluster.quiet(60)
    assert idle(cluster) == 2


@scenario(n1=2)
async def test_none_of_a_device_plugin_yields_to_a_pod_that_waits_by_a_claim(
    cluster: FakeCluster,
) -> None:
    await warmed(cluster, 2, warm=2)
    claim(cluster, "native")
    pod_with_claim(cluster, "native")
    await cluster.quiet(60)
    assert idle(cluster) == 2
