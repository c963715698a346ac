"""Plays kube-scheduler, kubelets, node agents and the garbage collector.

Each acts on the objects that have changed, so that a change costs no look at all the others.
"""

import asyncio
from bisect import insort
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kubeshare.api.types.constants import (
    NAMESPACE,
    PLACEHOLDER_PREFIX,
    VGPU_RESOURCE,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.control import FakeApiServer, ObjectPath
from kubeshare.simulator.control_tier.objects import gpu_uuid, seed_node
from kubeshare.simulator.control_tier.stored import (
    Raw,
    being_deleted,
    bind,
    bound,
    ended,
    gated,
    holders,
    overcommitted,
    owners,
    requested,
    set_running,
    set_unschedulable,
    wanted_nodes,
    without_holders_of,
)
from kubeshare.simulator.engine.simulation import StartTimes

_NO_GPU: Final = "no node has a free GPU"


class Kubernetes:
    """A cluster, without the programs of KubeShare.

    Args:
        server: its API server.
        nodes: its nodes.
        start: how long pods take to start.
        on_running: called with each pod that runs from now on.

    Attributes:
        held: uid of a demand → the names of the vGPUs on which it has holders.
    """

    def __init__(
        self,
        server: FakeApiServer,
        nodes: list[SimulatedNode],
        start: StartTimes,
        on_running: Callable[[Raw], None],
    ) -> None:
        self._server, self._start, self._on_running = server, start, on_running
        self._names = [node.name for node in nodes]
        self._free = {
            node.name: [(index, gpu_uuid(node.name, index)) for index in range(node.gpus)]
            for node in nodes
        }
        self._memory = {node.name: node.kind.memory_bytes for node in nodes}
        self.held: dict[str, set[str]] = defaultdict(set)
        self._holders: dict[str, set[str]] = {}  # vGPU -> uids of its demands
        self._prepared: dict[str, set[str]] = defaultdict(set)  # uid of a pod -> its vGPUs
        self._pods: dict[ObjectPath, str] = {}  # pods that have not ended -> uid
        self._uids: dict[ObjectPath, str] = {}  # of SharePods
        self._of_owner: dict[str, ObjectPath] = {}  # uid of a SharePod -> its pod
        self._given: dict[str, tuple[str, int, str]] = {}  # uid of a pod -> node, index, UUID
        self._starting: set[str] = set()  # uids of pods
        self._no_room: dict[ObjectPath, None] = {}  # pods that fit no node
        self._changed: dict[ObjectPath, None] = {}
        server.add_rule(VGPUS, overcommitted)
        for node in nodes:
            seed_node(server, node)
        server.storage.after_change.append(self._note)

    def end(self, pod: Raw) -> None:
        """Let the containers of a pod end, and its node agent release its shares."""
        path = self._path(pod)

        def succeed(changed: Raw) -> None:
            for container in changed["status"]["containerStatuses"]:
                container["state"] = {"terminated": {"exitCode": 0}}
            changed["status"]["phase"] = "Succeeded"

        self._change_pod(path, succeed)
        self._release(path)

    def _note(self, path: ObjectPath, new: Raw | None) -> None:
        """Act on a change after the write that made it is complete."""
        if path.plural == VGPUS.plural:
            self._index(path.name, new)
        elif path.plural not in (PODS.plural, SHAREPODS.plural):
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._act)
        self._changed[path] = None

    def _act(self) -> None:
        changed, self._changed = self._changed, {}
        for path in changed:
            obj = self._server.storage.objects.get(path)
            if path.plural == PODS.plural:
                self._pod(path, obj)
            elif path.plural == SHAREPODS.plural:
                self._sharepod(path, obj)
            elif obj is not None:
                self._vgpu(obj)

    def _index(self, name: str, vgpu: Raw | None) -> None:
        """Keep which demands hold a vGPU; at once, since a pod may be started by it."""
        found = holders(vgpu) if vgpu is not None else []
        now = {each["demand"] for each in found}
        before = self._holders.pop(name, set())
        for demand in before - now:
            self.held[demand].discard(name)
            if not self.held[demand]:
                del self.held[demand]
        for demand in now:
            self.held[demand].add(name)
        if now:
            self._holders[name] = now
        for each in found:
            if each["podUid"]:
                self._prepared[each["podUid"]].add(name)

    def _sharepod(self, path: ObjectPath, sharepod: Raw | None) -> None:
        """Collect the pod of a SharePod that is gone."""
        if sharepod is not None:
            self._uids[path] = sharepod["metadata"]["uid"]
            return
        pod = self._of_owner.pop(self._uids.pop(path, ""), None)
        if pod in self._server.storage.objects:
            assert pod is not None
            self._server.storage.remove(pod)

    def _pod(self, path: ObjectPath, pod: Raw | None) -> None:
        if pod is None or ended(pod):
            self._release(path)
        if pod is None:
            return
        if being_deleted(pod):
            self._server.storage.remove(path)
            return
        if ended(pod):
            return
        uid = self._pods[path] = pod["metadata"]["uid"]
        for owner in owners(pod):
            self._of_owner[owner] = path
        if not bound(pod) and not gated(pod):
            self._schedule(path, pod)
        elif pod["status"]["phase"] == "Pending" and bound(pod) and uid not in self._starting:
            self._begin(path, pod)

    def _schedule(self, path: ObjectPath, pod: Raw) -> None:
        gpus = requested(pod, WHOLE_GPU_RESOURCE)
        nodes = wanted_nodes(pod, self._names)
        node = next((name for name in nodes if len(self._free[name]) >= gpus), None)
        if node is None:
            self._no_room[path] = None
            self._change_pod(path, partial(set_unschedulable, _NO_GPU))
            return
        self._no_room.pop(path, None)
        if gpus:
            # Here and not at the start of the pod, or another one could be bound to the same GPU.
            self._given[pod["metadata"]["uid"]] = (node, *self._free[node].pop(0))
        self._change_pod(path, partial(bind, node))

    def _begin(self, path: ObjectPath, pod: Raw) -> None:
        """Start the containers of a bound pod, if its node agent has prepared its shares."""
        uid = pod["metadata"]["uid"]
        if requested(pod, VGPU_RESOURCE) and not self._is_prepared(uid):
            return
        start = self._start
        delay = start.existing
        if requested(pod, WHOLE_GPU_RESOURCE):
            delay = start.new - start.existing if _is_placeholder(pod) else start.native
        self._starting.add(uid)
        asyncio.get_running_loop().call_later(delay, self._run, path, uid)

    def _is_prepared(self, uid: str) -> bool:
        """Whether all holders of a pod name it, on vGPUs that have a GPU."""
        vgpus = [self._server.find(VGPUS, name) for name in self._prepared.get(uid, ())]
        ready = [vgpu for vgpu in vgpus if vgpu is not None and vgpu["spec"].get("uuid")]
        own = [each for vgpu in ready for each in holders(vgpu) if each["podUid"] == uid]
        return bool(own) and len(own) == own[0].get("parts", 1)

    def _run(self, path: ObjectPath, uid: str) -> None:
        pod = self._server.storage.objects.get(path)
        if self._pods.get(path) != uid or pod is None:
            return
        self._change_pod(path, set_running)
        if _is_placeholder(pod):
            vgpu = self._server.find(
                VGPUS, pod["metadata"]["name"].removeprefix(PLACEHOLDER_PREFIX)
            )
            if vgpu is not None:
                self._vgpu(vgpu)
        else:
            self._on_running(pod)

    def _vgpu(self, vgpu: Raw) -> None:
        """Name the GPU of a vGPU, and start the pods that have waited for it."""
        name = vgpu["metadata"]["name"]
        for each in holders(vgpu):
            path = self._of_owner.get(each["demand"])
            pod = self._server.storage.objects.get(path) if path else None
            if path is not None and pod is not None:
                self._pod(path, pod)
        placeholder = self._server.find(PODS, PLACEHOLDER_PREFIX + name, NAMESPACE)
        if placeholder is None or placeholder["status"]["phase"] != "Running":
            return
        uid = placeholder["metadata"]["uid"]
        node, _, uuid = self._given[uid]
        found = {"uuid": uuid, "placeholderUid": uid, "memoryBytes": self._memory[node]}
        if not vgpu["spec"].get("uuid"):
            self._server.change(VGPUS, name, "", lambda obj: obj["spec"].update(found))

    def _release(self, path: ObjectPath) -> None:
        """Free the GPU, or the shares, of a pod that has ended."""
        self._no_room.pop(path, None)
        uid = self._pods.pop(path, None)
        if uid is None:
            return
        self._starting.discard(uid)
        for name in sorted(self._prepared.pop(uid, ())):
            vgpu = self._server.find(VGPUS, name)
            if vgpu is not None and (update := without_holders_of({uid}, vgpu)):
                self._server.change(VGPUS, name, "", partial(_set_status, update))
        if uid in self._given:
            node, index, uuid = self._given.pop(uid)
            insort(self._free[node], (index, uuid))
            for waiting in tuple(self._no_room):
                self._pod(waiting, self._server.storage.objects.get(waiting))

    def _change_pod(self, path: ObjectPath, mutate: Callable[[Raw], Any]) -> None:
        self._server.change(PODS, path.name, path.namespace, mutate)

    def _path(self, pod: Raw) -> ObjectPath:
        metadata = pod["metadata"]
        return self._server.path(PODS, metadata["name"], metadata["namespace"])


def _is_placeholder(pod: Raw) -> bool:
    metadata = pod["metadata"]
    named = metadata["name"].startswith(PLACEHOLDER_PREFIX)
    return bool(named and metadata["namespace"] == NAMESPACE)


def _set_status(update: Raw, vgpu: Raw) -> None:
    vgpu["status"].update(update)
