"""The lives in which nodes, or who owns their GPUs, change."""

from expectations.pods import expect_bound, expect_running
from expectations.vgpus import (
    expect_holders,
    expect_no_vgpus,
    expect_phases,
    expect_placeholders,
    expect_shared_gpu,
    expect_vgpus,
)
from fakes.cluster import FakeCluster, vcuda
from fakes.cluster.disruptions import (
    cordon,
    label_node,
    own,
    recreate_node,
    replace_node,
    serve_by_claims,
)
from fakes.cluster.gpushare import dedicate, gated_pod, published
from fakes.cluster.state import degraded, held_gpus, is_same_pod, the_pod
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.dialects.write_back import VCUDA_INDEX
from kubeshare.kube.resources import RESOURCE_CLAIMS


async def drained(cluster: FakeCluster) -> None:
    """The node is cordoned and the pod evicted: it runs on the other node."""
    cluster.share("a")
    await expect_running(cluster, "a")
    pod = the_pod(cluster, "a")
    node = pod["spec"]["nodeName"]
    cordon(cluster, node)
    cluster.actors.delete(pod)
    await _elsewhere(cluster, "a", node)
    cordon(cluster, node, cordoned=False)


async def node_lost(cluster: FakeCluster) -> None:
    """The node of a pod is deleted: the pod runs on the other node, and nothing is left."""
    cluster.share("a")
    await expect_running(cluster, "a")
    node = cluster.sharepod("a")["spec"]["nodeName"]
    cluster.lose_node(node)
    await _elsewhere(cluster, "a", node)


async def node_exchanged(cluster: FakeCluster) -> None:
    """Another machine replaces the node under the same name: the pod runs on its GPU."""
    cluster.share("a")
    await expect_running(cluster, "a")
    (before,) = cluster.server.all(VGPUS)
    await replace_node(cluster, "n1", 1)

    def other() -> bool:
        uuids = [vgpu["spec"].get("uuid") for vgpu in cluster.server.all(VGPUS)]
        return uuids not in ([before["spec"]["uuid"]], [None], [])

    await cluster.until(other)
    await expect_running(cluster, "a")
    await expect_shared_gpu(cluster, "a")


async def gpunode_deleted(cluster: FakeCluster) -> None:
    """The GPUNode is deleted: its agent creates it again, and pods run on."""
    cluster.share("a")
    await expect_running(cluster, "a")
    cluster.server.remove(GPUNODES, "n1")
    cluster.share("b")
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")


async def node_rejoined(cluster: FakeCluster) -> None:
    """The Node object is created again under the same name: pods run on."""
    cluster.share("a")
    await expect_running(cluster, "a")
    before = the_pod(cluster, "a")
    recreate_node(cluster, "n1")
    cluster.share("b")
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")
    after = the_pod(cluster, "a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def node_full(cluster: FakeCluster) -> None:
    """kube-scheduler finds no room on the chosen node: the pod runs on the other node."""
    cluster.actors.full.add("n1")
    cluster.share("a")
    await expect_running(cluster, "a")
    await expect_vgpus(cluster, 1, placeholders=1)


async def gpu_failed(cluster: FakeCluster) -> None:
    """The GPU fails, with eviction configured: the pod runs on the other node."""
    cluster.configure(gpuFailure="evict")
    cluster.share("a")
    await expect_running(cluster, "a")
    node = cluster.sharepod("a")["spec"]["nodeName"]
    cluster.fail_gpus(node, "XID 79")
    await _elsewhere(cluster, "a", node)


async def owned(cluster: FakeCluster) -> None:
    """KubeShare owns the GPUs of a node; two SharePods run there, and the node is given back."""
    own(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")
    cluster.share("a", "0.7")
    cluster.share("b", "0.7")
    await expect_running(cluster, "a", "b")
    await expect_holders(cluster, ["a"], ["b"])
    cluster.delete("b")
    await expect_phases(cluster, "Active", "Idle")
    label_node(cluster, "n1", gpus=None)
    await expect_phases(cluster, "Active")
    assert cluster.running("a")
    cluster.delete("a")
    await expect_no_vgpus(cluster)


async def gpushare(cluster: FakeCluster) -> None:
    """Pods of gpushare are packed on a node of their own; one ends, one is deleted."""
    await dedicate(cluster, "n1", 32)
    await expect_phases(cluster, "Idle", "Idle")
    gated_pod(cluster, "a", "10")
    await expect_running(cluster, "a")
    gated_pod(cluster, "b", "4")
    await expect_running(cluster, "b")
    await expect_phases(cluster, "Active", "Idle")
    assert published(cluster, "a")["IDX"] == published(cluster, "b")["IDX"]
    cluster.end("a")
    await cluster.until(lambda: not published(cluster, "a"))
    cluster.actors.delete(the_pod(cluster, "b"))
    await expect_phases(cluster, "Idle", "Idle")
    label_node(cluster, "n1", gpus=None)
    await expect_no_vgpus(cluster)


async def of_vcuda(cluster: FakeCluster) -> None:
    """A vcuda pod with a share and a whole GPU, and another one beside the share."""
    await vcuda.dedicate(cluster, "n1", 2)
    await expect_phases(cluster, "Idle", "Idle")
    containers = [vcuda.asking("main", "100"), vcuda.asking("side", "40", "4")]
    vcuda.gated_pod(cluster, "a", *containers)
    await expect_running(cluster, "a")
    vcuda.gated_pod(cluster, "b", vcuda.asking("main", "50", "4"))
    await expect_running(cluster, "b")
    indexes = vcuda.published(cluster, "a")
    assert indexes[VCUDA_INDEX + "0"] != indexes[VCUDA_INDEX + "1"]
    assert vcuda.published(cluster, "b")[VCUDA_INDEX + "0"] == indexes[VCUDA_INDEX + "1"]
    cluster.end("a")
    await cluster.until(lambda: not vcuda.published(cluster, "a"))
    cluster.actors.delete(the_pod(cluster, "b"))
    await expect_phases(cluster, "Idle", "Idle")
    label_node(cluster, "n1", gpus=None)
    await expect_no_vgpus(cluster)


async def taken_over(cluster: FakeCluster) -> None:
    """KubeShare takes over a node while a pod shares a GPU there: the pod keeps its share."""
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    before, (gpuid,) = the_pod(cluster, "a"), cluster.vgpus()
    own(cluster, "n1")
    await expect_phases(cluster, "Active", "Idle")
    await expect_placeholders(cluster, 0)
    cluster.share("b", "0.7")
    await expect_running(cluster, "b")
    assert is_same_pod(cluster, before)
    assert cluster.vgpus()[gpuid] == ["a"]
    label_node(cluster, "n1", gpus=None)


async def by_claims(cluster: FakeCluster) -> None:
    """A DRA driver offers the GPUs: each vGPU has the GPU that the policy chose, and keeps it."""
    uuids = serve_by_claims(cluster, "n1")
    cluster.share("a", "0.7", affinity="a")
    await expect_running(cluster, "a")
    cluster.share("b", "0.7")
    await expect_running(cluster, "b")
    before = held_gpus(cluster)
    assert sorted(before.values()) == sorted(uuids)
    lost = cluster.placeholders()
    cluster.lose_placeholders()
    await cluster.until(lambda: cluster.placeholders() == lost)
    cluster.share("c", "0.3", affinity="a")
    await expect_running(cluster, "c")
    assert held_gpus(cluster) == before | {"c": before["a"]}
    cluster.delete("b")
    await expect_vgpus(cluster, 1, placeholders=1)


async def given_back(cluster: FakeCluster) -> None:
    """A node is given back to its device plugin while a pod shares a GPU there."""
    own(cluster, "n1")
    await expect_phases(cluster, "Idle", "Idle")
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    before = the_pod(cluster, "a")
    (gpuid,) = [name for name, held in cluster.vgpus().items() if held]
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus=None)
    cluster.offer("n1", 2)
    await cluster.until(lambda: cluster.vgpu(gpuid)["spec"]["pool"] == "onDemand")
    await expect_vgpus(cluster, 1, placeholders=1)
    assert is_same_pod(cluster, before)
    assert cluster.vgpus()[gpuid] == ["a"]
    cordon(cluster, "n1", cordoned=False)


async def claims_released(cluster: FakeCluster) -> None:
    """A node with a DRA driver is taken over while a pod shares a GPU there, and given back."""
    serve_by_claims(cluster, "n1")
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    before, (gpuid,) = the_pod(cluster, "a"), cluster.vgpus()
    cordon(cluster, "n1")
    label_node(cluster, "n1", gpus="owned")
    await cluster.until(lambda: cluster.vgpu(gpuid)["spec"]["pool"] == "static")
    await expect_placeholders(cluster, 0)
    await cluster.until(lambda: not cluster.server.all(RESOURCE_CLAIMS, NAMESPACE))
    label_node(cluster, "n1", gpus=None)
    await cluster.until(lambda: cluster.vgpu(gpuid)["spec"]["pool"] == "onDemand")
    await expect_vgpus(cluster, 1, placeholders=1)
    cordon(cluster, "n1", cordoned=False)
    [lost] = cluster.server.all(RESOURCE_CLAIMS, NAMESPACE)
    cluster.server.remove(RESOURCE_CLAIMS, lost["metadata"]["name"], NAMESPACE)
    placeholder = cluster.vgpu(gpuid)["spec"]["placeholderUid"]
    await cluster.until(lambda: cluster.vgpu(gpuid)["spec"]["placeholderUid"] != placeholder)
    await cluster.until(lambda: degraded(cluster).get("status") != "True")
    await expect_vgpus(cluster, 1, placeholders=1)
    assert is_same_pod(cluster, before)
    assert cluster.vgpus()[gpuid] == ["a"]


async def _elsewhere(cluster: FakeCluster, name: str, node: str) -> None:
    """The pod runs on another node, and the first vGPU is deleted."""
    await expect_bound(cluster, name, without=node)
    await expect_running(cluster, name)
    await expect_vgpus(cluster, 1, placeholders=1)
