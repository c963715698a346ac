"""The lives: scenarios that must succeed whatever goes wrong.

A life may leave objects behind; its caller deletes them and checks for leaks.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from expectations.pods import (
    expect_condition,
    expect_deleted,
    expect_owner,
    expect_plain_pods,
    expect_pod,
    expect_ready,
    expect_replaced,
    expect_replicas,
    expect_running,
    expect_sharepod_phase,
    expect_terminating,
)
from expectations.scheduling import expect_decided
from expectations.vgpus import expect_holders, expect_no_vgpus, expect_phases, expect_shared_gpu
from fakes.cluster import FakeCluster
from fakes.cluster.disruptions import (
    delete_namespace,
    write_invalid_configuration,
)
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import PODS
from robustness.fault_matrix import node_lives

STEP_SECONDS = 300.0
"""Virtual time for each step, with time-outs and the detection of lost watches."""


class Life(NamedTuple):
    """A scenario, and node -> the number of GPUs of the cluster in which it runs."""

    run: Callable[[FakeCluster], Awaitable[None]]
    gpus: dict[str, int]

    async def play(self, cluster: FakeCluster) -> None:
        """Runs the scenario; each step may take ``STEP_SECONDS``."""
        cluster.deadline = STEP_SECONDS
        await self.run(cluster)


async def _alone(cluster: FakeCluster) -> None:
    """One SharePod runs and is deleted."""
    cluster.share("a")
    await expect_running(cluster, "a")
    await expect_ready(cluster, "a")
    cluster.delete("a")
    await expect_no_vgpus(cluster)


async def _together(cluster: FakeCluster) -> None:
    """Two SharePods share one GPU; one of them succeeds, the other is deleted."""
    cluster.share("a", "0.5")
    await expect_running(cluster, "a")
    cluster.share("b", "0.5")
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")
    cluster.end("a")
    cluster.delete("b")
    await expect_no_vgpus(cluster)
    await expect_sharepod_phase(cluster, "a", "Succeeded")


async def _batch(cluster: FakeCluster) -> None:
    """Four SharePods that are decided at once run on two GPUs and are deleted."""
    names = "abcd"
    for name in names:
        cluster.share(name, "0.4")
    await expect_running(cluster, *names)
    for name in names:
        cluster.delete(name)
    await expect_no_vgpus(cluster)


async def _queue(cluster: FakeCluster) -> None:
    """A SharePod is pending until another one releases the only GPU."""
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.share("b", "0.7")
    await expect_decided(cluster, "b")
    cluster.delete("a")
    await expect_running(cluster, "b")


async def _named(cluster: FakeCluster) -> None:
    """Two SharePods name the same GPU; the second is pending until it has room."""
    cluster.share("a", "0.6", id="mine", spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    cluster.share("b", "0.6", id="mine", spec={"nodeName": "n1"})
    await expect_condition(cluster, "b", "Allocated")
    cluster.delete("a")
    await expect_running(cluster, "b")
    await expect_holders(cluster, ["b"])
    assert cluster.vgpus() == {"mine": ["b"]}


async def _failing(cluster: FakeCluster) -> None:
    """A pod fails for good: its SharePod stays, and its GPU is released."""
    cluster.share("a", spec={"restartPolicy": "Never"})
    await expect_running(cluster, "a")
    cluster.end("a", "Failed")
    await expect_no_vgpus(cluster)
    await expect_sharepod_phase(cluster, "a", "Failed")


async def _again(cluster: FakeCluster) -> None:
    """A pod is deleted and its SharePod is not: the pod is created again."""
    cluster.share("a")
    await expect_running(cluster, "a")
    first = the_pod(cluster, "a")
    cluster.actors.delete(first)
    await expect_replaced(cluster, first)
    await expect_running(cluster, "a")


async def _namesake(cluster: FakeCluster) -> None:
    """A SharePod is deleted and created again, once after its finalizer was removed by force."""
    for machine in cluster.machines.values():
        machine.stopping = 3.0
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.delete("a")
    await expect_deleted(cluster, "a")
    former = cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.server.remove(SHAREPODS, "a", "default")
    last = cluster.share("a", "0.7")
    assert former["metadata"]["uid"] != last["metadata"]["uid"]
    await expect_owner(cluster, "a", last)
    await expect_running(cluster, "a")
    await expect_shared_gpu(cluster, "a")


async def _namespace_deleted(cluster: FakeCluster) -> None:
    """A namespace is deleted with its objects in any order, and used again."""
    cluster.share("a")
    cluster.plain("b")
    await expect_running(cluster, "a", "b")
    cluster.share("c", "0.9")
    await delete_namespace(cluster)
    await expect_no_vgpus(cluster)
    cluster.share("a")
    await expect_running(cluster, "a")


async def _wide(cluster: FakeCluster) -> None:
    """A SharePod requests two GPUs; another one holds one of them for a while."""
    cluster.share("a", "0.6")
    await expect_running(cluster, "a")
    cluster.share("b", "0.6", count=2)
    await expect_decided(cluster, "b")
    cluster.delete("a")
    await expect_running(cluster, "b")
    await expect_holders(cluster, ["b"], ["b"])


async def _several_shares(cluster: FakeCluster) -> None:
    """Two containers have different shares of one GPU, and two and a half GPUs follow."""
    names = ("learn", "serve")
    shares = [
        {"name": name, "request": request, "memory": "1Gi", "containers": [name]}
        for name, request in zip(names, ("0.6", "0.4"), strict=True)
    ]
    containers = [{"name": name, "image": "x"} for name in (*names, "log")]
    cluster.share("a", gpu={"shares": shares}, spec={"containers": containers})
    await expect_running(cluster, "a")
    await expect_holders(cluster, ["a", "a"])
    cluster.share("b", gpu={"request": "2.5"})
    await expect_decided(cluster, "b")
    cluster.delete("a")
    await expect_running(cluster, "b")
    await expect_holders(cluster, ["b"], ["b"], ["b"])


async def _placeholder_lost(cluster: FakeCluster) -> None:
    """The placeholder is lost and recreated with the same GPU, which the next pod shares."""
    cluster.share("a")
    await expect_running(cluster, "a")
    lost = cluster.placeholders()
    cluster.lose_placeholders()
    await cluster.until(lambda: cluster.placeholders() == lost)
    cluster.share("b")
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")


async def _gang(cluster: FakeCluster) -> None:
    """A gang of two preempts another SharePod, and starts together."""
    cluster.configure(preemption=True)
    cluster.share("x", "1", annotations={"kubeshare.nthu/preemptible": "true"})
    await expect_running(cluster, "x")
    together = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    for name in "ab":
        cluster.share(name, "1", labels=together | {"sharedgpu/priority": "5"})
        assert cluster.pod("a") is None
    await expect_running(cluster, "a", "b")
    await expect_holders(cluster, ["a"], ["b"])


async def _plain(cluster: FakeCluster) -> None:
    """A plain pod runs; another one is pending until it is gone."""
    first = cluster.plain("a", "0.7")
    await expect_running(cluster, "a")
    cluster.plain("b", "0.7")
    await expect_decided(cluster, "b")
    cluster.actors.delete(first)
    await expect_running(cluster, "b")


async def _job(cluster: FakeCluster) -> None:
    """The pod of a Job shares a GPU with a SharePod, and ends: its share is released."""
    cluster.share("s")
    await expect_running(cluster, "s")
    cluster.plain("a")
    await expect_running(cluster, "a")
    assert cluster.shares_gpu("a", "s")
    cluster.end("a")
    await expect_shared_gpu(cluster, "s")


async def _replicas(cluster: FakeCluster) -> None:
    """One of two plain pods of a controller is deleted while it runs, and replaced."""
    cluster.replicas("web", 2)
    first, second = await expect_replicas(cluster, 2)
    cluster.actors.delete(the_pod(cluster, first))
    replicas = await expect_replicas(cluster, 2, without=first)
    assert second in replicas
    await expect_shared_gpu(cluster, *replicas)


async def _replica_without_room(cluster: FakeCluster) -> None:
    """kube-scheduler finds no room for a plain pod: its controller creates another one."""
    cluster.actors.full.add("n1")
    cluster.replicas("web", 1)
    await expect_plain_pods(cluster, 1, without="web-0")
    cluster.actors.full.clear()
    cluster.actors.reconcile()
    await expect_replicas(cluster, 1, seconds=4 * STEP_SECONDS)


async def _warm(cluster: FakeCluster) -> None:
    """A warm vGPU; between two SharePods a native pod has its GPU."""
    cluster.configure(pool={"policy": "reservation", "warm": 1})
    await expect_phases(cluster, "Idle")
    cluster.share("a", "1")
    await expect_running(cluster, "a")
    cluster.delete("a")
    cluster.native_pod("native")
    await expect_running(cluster, "native")
    cluster.server.remove(PODS, "native", "default")
    await expect_phases(cluster, "Idle")
    cluster.share("b", "1")
    await expect_running(cluster, "b")
    await expect_phases(cluster, "Active")
    cluster.configure()


async def _hybrid(cluster: FakeCluster) -> None:
    """An idle vGPU is kept for a time, and then deleted."""
    cluster.configure(pool={"policy": "hybrid", "idleSeconds": 20})
    cluster.share("a")
    await expect_running(cluster, "a")
    cluster.delete("a")
    await expect_phases(cluster, "Idle")
    await expect_no_vgpus(cluster)


async def _configured_amiss(cluster: FakeCluster) -> None:
    """An invalid configuration is ignored: the former one or the defaults apply."""
    kept = {"policy": "reservation", "warm": 1}
    cluster.configure(pool=kept)
    await expect_phases(cluster, "Idle")
    write_invalid_configuration(cluster)
    cluster.share("a", "1")
    await expect_running(cluster, "a")
    cluster.delete("a")
    cluster.configure(pool=kept)
    await expect_phases(cluster, "Idle")
    cluster.configure()


async def _deleted(cluster: FakeCluster) -> None:
    """SharePods are deleted while pending, before the pod is bound, and while it runs."""
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.share("b", "0.7")
    await expect_decided(cluster, "b")
    cluster.delete("b")
    await expect_deleted(cluster, "b")
    cluster.actors.full.add("n1")
    cluster.share("c")
    await expect_pod(cluster, "c")
    cluster.delete("c")
    await expect_deleted(cluster, "c")
    cluster.delete("a", "Foreground")
    await expect_deleted(cluster, "a")


async def _left_alone(cluster: FakeCluster) -> None:
    """A SharePod is deleted without its pod; the stopping pod of another is force-deleted."""
    cluster.share("a")
    await expect_running(cluster, "a")
    cluster.share("b")
    await expect_running(cluster, "b")
    cluster.delete("a", "Orphan")
    await expect_deleted(cluster, "a")
    assert cluster.running("a")
    for machine in cluster.machines.values():
        machine.stopping = 5.0
    cluster.delete("b")
    await expect_terminating(cluster, "b")
    for pod in cluster.server.all(PODS, "default"):
        cluster.server.remove(PODS, pod["metadata"]["name"], "default")
    await expect_deleted(cluster, "b")


async def _taken_back(cluster: FakeCluster) -> None:
    """A paused former leader removes the holder of a pod that has just been bound."""
    cluster.configure(pool={"policy": "reservation"})
    cluster.actors.binds = False
    cluster.share("a", "0.6")
    await expect_pod(cluster, "a")
    lost = next(gpuid for gpuid, held in cluster.vgpus().items() if held)
    cluster.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=[]))
    cluster.actors.binds = True
    cluster.actors.reconcile()
    await expect_running(cluster, "a")
    cluster.configure()


LIVES = {
    "alone": Life(_alone, {"n1": 1}),
    "together": Life(_together, {"n1": 1}),
    "batch": Life(_batch, {"n1": 2}),
    "queue": Life(_queue, {"n1": 1}),
    "named": Life(_named, {"n1": 1}),
    "failing": Life(_failing, {"n1": 1}),
    "again": Life(_again, {"n1": 1}),
    "namesake": Life(_namesake, {"n1": 1}),
    "namespace deleted": Life(_namespace_deleted, {"n1": 2}),
    "drained": Life(node_lives.drained, {"n1": 1, "n2": 1}),
    "node exchanged": Life(node_lives.node_exchanged, {"n1": 1}),
    "gpunode deleted": Life(node_lives.gpunode_deleted, {"n1": 1}),
    "node lost": Life(node_lives.node_lost, {"n1": 1, "n2": 1}),
    "node rejoined": Life(node_lives.node_rejoined, {"n1": 1}),
    "node full": Life(node_lives.node_full, {"n1": 1, "n2": 2}),
    "gpu failed": Life(node_lives.gpu_failed, {"n1": 1, "n2": 1}),
    "placeholder lost": Life(_placeholder_lost, {"n1": 1}),
    "wide": Life(_wide, {"n1": 2}),
    "several shares": Life(_several_shares, {"n1": 3}),
    "gang": Life(_gang, {"n1": 2}),
    "plain": Life(_plain, {"n1": 1}),
    "job": Life(_job, {"n1": 1}),
    "replicas": Life(_replicas, {"n1": 1}),
    "replica without room": Life(_replica_without_room, {"n1": 1}),
    "warm": Life(_warm, {"n1": 1}),
    "hybrid": Life(_hybrid, {"n1": 1}),
    "configured amiss": Life(_configured_amiss, {"n1": 1}),
    "deleted": Life(_deleted, {"n1": 1}),
    "left alone": Life(_left_alone, {"n1": 1}),
    "taken back": Life(_taken_back, {"n1": 1}),
    "owned": Life(node_lives.owned, {"n1": 2}),
    "gpushare": Life(node_lives.gpushare, {"n1": 2}),
    "vcuda": Life(node_lives.of_vcuda, {"n1": 2}),
    "taken over": Life(node_lives.taken_over, {"n1": 2}),
    "by claims": Life(node_lives.by_claims, {"n1": 2}),
    "given back": Life(node_lives.given_back, {"n1": 2}),
    "claims released": Life(node_lives.claims_released, {"n1": 2}),
}
