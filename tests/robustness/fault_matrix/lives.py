"""The lives: scenarios that must succeed whatever goes wrong.

A life may leave objects behind; its caller deletes them and checks for leaks.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from expectations import (
    expect_bound,
    expect_condition,
    expect_decided,
    expect_deleted,
    expect_holders,
    expect_no_vgpus,
    expect_owner,
    expect_phases,
    expect_plain_pods,
    expect_pod,
    expect_ready,
    expect_replaced,
    expect_replicas,
    expect_running,
    expect_shared_gpu,
    expect_sharepod_phase,
    expect_terminating,
    expect_vgpus,
)
from fakes.cluster import World
from fakes.cluster.disruptions import (
    cordon,
    delete_namespace,
    label_node,
    own,
    recreate_node,
    replace_node,
    write_invalid_configuration,
)
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import PODS

STEP_SECONDS = 300.0
"""Virtual time for each step, with time-outs and the detection of lost watches."""


class Life(NamedTuple):
    """A scenario, and node -> the number of GPUs of the cluster in which it runs."""

    run: Callable[[World], Awaitable[None]]
    gpus: dict[str, int]

    async def play(self, world: World) -> None:
        """Runs the scenario; each step may take ``STEP_SECONDS``."""
        world.deadline = STEP_SECONDS
        await self.run(world)


async def _alone(world: World) -> None:
    """One SharePod runs and is deleted."""
    world.share("a")
    await expect_running(world, "a")
    await expect_ready(world, "a")
    world.delete("a")
    await expect_no_vgpus(world)


async def _together(world: World) -> None:
    """Two SharePods share one GPU; one of them succeeds, the other is deleted."""
    world.share("a", "0.5")
    await expect_running(world, "a")
    world.share("b", "0.5")
    await expect_running(world, "b")
    assert world.shares_gpu("a", "b")
    world.end("a")
    world.delete("b")
    await expect_no_vgpus(world)
    await expect_sharepod_phase(world, "a", "Succeeded")


async def _queue(world: World) -> None:
    """A SharePod is pending until another one releases the only GPU."""
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.share("b", "0.7")
    await expect_decided(world, "b")
    world.delete("a")
    await expect_running(world, "b")


async def _named(world: World) -> None:
    """Two SharePods name the same GPU; the second is pending until it has room."""
    world.share("a", "0.6", id="mine", spec={"nodeName": "n1"})
    await expect_running(world, "a")
    world.share("b", "0.6", id="mine", spec={"nodeName": "n1"})
    await expect_condition(world, "b", "Allocated")
    world.delete("a")
    await expect_running(world, "b")
    await expect_holders(world, ["b"])
    assert world.vgpus() == {"mine": ["b"]}


async def _failing(world: World) -> None:
    """A pod fails for good: its SharePod stays, and its GPU is released."""
    world.share("a", spec={"restartPolicy": "Never"})
    await expect_running(world, "a")
    world.end("a", "Failed")
    await expect_no_vgpus(world)
    await expect_sharepod_phase(world, "a", "Failed")


async def _again(world: World) -> None:
    """A pod is deleted and its SharePod is not: the pod is created again."""
    world.share("a")
    await expect_running(world, "a")
    first = the_pod(world, "a")
    world.actors.delete(first)
    await expect_replaced(world, first)
    await expect_running(world, "a")


async def _namesake(world: World) -> None:
    """A SharePod is deleted and created again, once after its finalizer was removed by force."""
    for machine in world.machines.values():
        machine.stopping = 3.0
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.delete("a")
    await expect_deleted(world, "a")
    former = world.share("a", "0.7")
    await expect_running(world, "a")
    world.server.remove(SHAREPODS, "a", "default")
    last = world.share("a", "0.7")
    assert former["metadata"]["uid"] != last["metadata"]["uid"]
    await expect_owner(world, "a", last)
    await expect_running(world, "a")
    await expect_shared_gpu(world, "a")


async def _namespace_deleted(world: World) -> None:
    """A namespace is deleted with its objects in any order, and used again."""
    world.share("a")
    world.plain("b")
    await expect_running(world, "a", "b")
    world.share("c", "0.9")
    await delete_namespace(world)
    await expect_no_vgpus(world)
    world.share("a")
    await expect_running(world, "a")


async def _drained(world: World) -> None:
    """The node is cordoned and the pod evicted: it runs on the other node."""
    world.share("a")
    await expect_running(world, "a")
    pod = the_pod(world, "a")
    node = pod["spec"]["nodeName"]
    cordon(world, node)
    world.actors.delete(pod)
    await _elsewhere(world, "a", node)
    cordon(world, node, cordoned=False)


async def _wide(world: World) -> None:
    """A SharePod requests two GPUs; another one holds one of them for a while."""
    world.share("a", "0.6")
    await expect_running(world, "a")
    world.share("b", "0.6", count=2)
    await expect_decided(world, "b")
    world.delete("a")
    await expect_running(world, "b")
    await expect_holders(world, ["b"], ["b"])


async def _node_lost(world: World) -> None:
    """The node of a pod is deleted: the pod runs on the other node, and nothing is left."""
    world.share("a")
    await expect_running(world, "a")
    node = world.sharepod("a")["spec"]["nodeName"]
    world.lose_node(node)
    await _elsewhere(world, "a", node)


async def _node_exchanged(world: World) -> None:
    """Another machine replaces the node under the same name: the pod runs on its GPU."""
    world.share("a")
    await expect_running(world, "a")
    (before,) = world.server.all(VGPUS)
    await replace_node(world, "n1", 1)

    def other() -> bool:
        uuids = [vgpu["spec"].get("uuid") for vgpu in world.server.all(VGPUS)]
        return uuids not in ([before["spec"]["uuid"]], [None], [])

    await world.until(other)
    await expect_running(world, "a")
    await expect_shared_gpu(world, "a")


async def _gpunode_deleted(world: World) -> None:
    """The GPUNode is deleted: its agent creates it again, and pods run on."""
    world.share("a")
    await expect_running(world, "a")
    world.server.remove(GPUNODES, "n1")
    world.share("b")
    await expect_running(world, "b")
    assert world.shares_gpu("a", "b")


async def _node_rejoined(world: World) -> None:
    """The Node object is created again under the same name: pods run on."""
    world.share("a")
    await expect_running(world, "a")
    before = the_pod(world, "a")
    recreate_node(world, "n1")
    world.share("b")
    await expect_running(world, "b")
    assert world.shares_gpu("a", "b")
    after = the_pod(world, "a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def _node_full(world: World) -> None:
    """kube-scheduler finds no room on the chosen node: the pod runs on the other node."""
    world.actors.full.add("n1")
    world.share("a")
    await expect_running(world, "a")
    await expect_vgpus(world, 1, placeholders=1)


async def _gpu_failed(world: World) -> None:
    """The GPU fails, with eviction configured: the pod runs on the other node."""
    world.configure(gpuFailure="evict")
    world.share("a")
    await expect_running(world, "a")
    node = world.sharepod("a")["spec"]["nodeName"]
    world.fail_gpus(node, "XID 79")
    await _elsewhere(world, "a", node)


async def _placeholder_lost(world: World) -> None:
    """The placeholder is lost and recreated with the same GPU, which the next pod shares."""
    world.share("a")
    await expect_running(world, "a")
    lost = world.placeholders()
    world.lose_placeholders()
    await world.until(lambda: world.placeholders() == lost)
    world.share("b")
    await expect_running(world, "b")
    assert world.shares_gpu("a", "b")


async def _gang(world: World) -> None:
    """A gang of two preempts another SharePod, and starts together."""
    world.configure(preemption=True)
    world.share("x", "1", annotations={"kubeshare.nthu/preemptible": "true"})
    await expect_running(world, "x")
    together = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    for name in "ab":
        world.share(name, "1", labels=together | {"sharedgpu/priority": "5"})
        assert world.pod("a") is None
    await expect_running(world, "a", "b")
    await expect_holders(world, ["a"], ["b"])


async def _plain(world: World) -> None:
    """A plain pod runs; another one is pending until it is gone."""
    first = world.plain("a", "0.7")
    await expect_running(world, "a")
    world.plain("b", "0.7")
    await expect_decided(world, "b")
    world.actors.delete(first)
    await expect_running(world, "b")


async def _job(world: World) -> None:
    """The pod of a Job shares a GPU with a SharePod, and ends: its share is released."""
    world.share("s")
    await expect_running(world, "s")
    world.plain("a")
    await expect_running(world, "a")
    assert world.shares_gpu("a", "s")
    world.end("a")
    await expect_shared_gpu(world, "s")


async def _replicas(world: World) -> None:
    """One of two plain pods of a controller is deleted while it runs, and replaced."""
    world.replicas("web", 2)
    first, second = await expect_replicas(world, 2)
    world.actors.delete(the_pod(world, first))
    replicas = await expect_replicas(world, 2, without=first)
    assert second in replicas
    await expect_shared_gpu(world, *replicas)


async def _replica_without_room(world: World) -> None:
    """kube-scheduler finds no room for a plain pod: its controller creates another one."""
    world.actors.full.add("n1")
    world.replicas("web", 1)
    await expect_plain_pods(world, 1, without="web-0")
    world.actors.full.clear()
    world.actors.reconcile()
    await expect_replicas(world, 1, seconds=4 * STEP_SECONDS)


async def _warm(world: World) -> None:
    """A warm vGPU; between two SharePods a native pod has its GPU."""
    world.configure(pool={"policy": "reservation", "warm": 1})
    await expect_phases(world, "Idle")
    world.share("a", "1")
    await expect_running(world, "a")
    world.delete("a")
    world.native_pod("native")
    await expect_running(world, "native")
    world.server.remove(PODS, "native", "default")
    await expect_phases(world, "Idle")
    world.share("b", "1")
    await expect_running(world, "b")
    await expect_phases(world, "Active")
    world.configure()


async def _hybrid(world: World) -> None:
    """An idle vGPU is kept for a time, and then deleted."""
    world.configure(pool={"policy": "hybrid", "idleSeconds": 20})
    world.share("a")
    await expect_running(world, "a")
    world.delete("a")
    await expect_phases(world, "Idle")
    await expect_no_vgpus(world)


async def _configured_amiss(world: World) -> None:
    """An invalid configuration is ignored: the former one or the defaults apply."""
    kept = {"policy": "reservation", "warm": 1}
    world.configure(pool=kept)
    await expect_phases(world, "Idle")
    write_invalid_configuration(world)
    world.share("a", "1")
    await expect_running(world, "a")
    world.delete("a")
    world.configure(pool=kept)
    await expect_phases(world, "Idle")
    world.configure()


async def _deleted(world: World) -> None:
    """SharePods are deleted while pending, before the pod is bound, and while it runs."""
    world.share("a", "0.7")
    await expect_running(world, "a")
    world.share("b", "0.7")
    await expect_decided(world, "b")
    world.delete("b")
    await expect_deleted(world, "b")
    world.actors.full.add("n1")
    world.share("c")
    await expect_pod(world, "c")
    world.delete("c")
    await expect_deleted(world, "c")
    world.delete("a", "Foreground")
    await expect_deleted(world, "a")


async def _left_alone(world: World) -> None:
    """A SharePod is deleted without its pod; the stopping pod of another is force-deleted."""
    world.share("a")
    await expect_running(world, "a")
    world.share("b")
    await expect_running(world, "b")
    world.delete("a", "Orphan")
    await expect_deleted(world, "a")
    assert world.running("a")
    for machine in world.machines.values():
        machine.stopping = 5.0
    world.delete("b")
    await expect_terminating(world, "b")
    for pod in world.server.all(PODS, "default"):
        world.server.remove(PODS, pod["metadata"]["name"], "default")
    await expect_deleted(world, "b")


async def _taken_back(world: World) -> None:
    """A paused former leader removes the holder of a pod that has just been bound."""
    world.configure(pool={"policy": "reservation"})
    world.actors.binds = False
    world.share("a", "0.6")
    await expect_pod(world, "a")
    lost = next(gpuid for gpuid, held in world.vgpus().items() if held)
    world.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=[]))
    world.actors.binds = True
    world.actors.reconcile()
    await expect_running(world, "a")
    world.configure()


async def _owned(world: World) -> None:
    """KubeShare owns the GPUs of a node; two SharePods run there, and the node is given back."""
    own(world, "n1")
    await expect_phases(world, "Idle", "Idle")
    world.share("a", "0.7")
    world.share("b", "0.7")
    await expect_running(world, "a", "b")
    await expect_holders(world, ["a"], ["b"])
    world.delete("b")
    await expect_phases(world, "Active", "Idle")
    label_node(world, "n1", gpus=None)
    await expect_phases(world, "Active")
    assert world.running("a")
    world.delete("a")
    await expect_no_vgpus(world)


async def _taken_over(world: World) -> None:
    """KubeShare takes over a node while a pod shares a GPU there: the pod keeps its share."""
    world.share("a", "0.7")
    await expect_running(world, "a")
    before, (gpuid,) = the_pod(world, "a"), world.vgpus()
    own(world, "n1")
    await expect_phases(world, "Active", "Idle")
    await world.until(lambda: not world.placeholders())
    world.share("b", "0.7")
    await expect_running(world, "b")
    assert is_same_pod(world, before)
    assert world.vgpus()[gpuid] == ["a"]
    label_node(world, "n1", gpus=None)


async def _elsewhere(world: World, name: str, node: str) -> None:
    """The pod runs on another node, and the first vGPU is deleted."""
    await expect_bound(world, name, without=node)
    await expect_running(world, name)
    await expect_vgpus(world, 1, placeholders=1)


LIVES = {
    "alone": Life(_alone, {"n1": 1}),
    "together": Life(_together, {"n1": 1}),
    "queue": Life(_queue, {"n1": 1}),
    "named": Life(_named, {"n1": 1}),
    "failing": Life(_failing, {"n1": 1}),
    "again": Life(_again, {"n1": 1}),
    "namesake": Life(_namesake, {"n1": 1}),
    "namespace deleted": Life(_namespace_deleted, {"n1": 2}),
    "drained": Life(_drained, {"n1": 1, "n2": 1}),
    "node exchanged": Life(_node_exchanged, {"n1": 1}),
    "gpunode deleted": Life(_gpunode_deleted, {"n1": 1}),
    "node lost": Life(_node_lost, {"n1": 1, "n2": 1}),
    "node rejoined": Life(_node_rejoined, {"n1": 1}),
    "node full": Life(_node_full, {"n1": 1, "n2": 2}),
    "gpu failed": Life(_gpu_failed, {"n1": 1, "n2": 1}),
    "placeholder lost": Life(_placeholder_lost, {"n1": 1}),
    "wide": Life(_wide, {"n1": 2}),
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
    "owned": Life(_owned, {"n1": 2}),
    "taken over": Life(_taken_over, {"n1": 2}),
}
