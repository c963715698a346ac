"""Acts as the parts of Kubernetes and the node agents that KubeShare works with.

Level-based like the real ones: after each change all of them reconcile all objects.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fakes.cluster.claims import can_allocate, collect_claims, selected_gpus
from fakes.cluster.machines import Machine
from kubeshare.api.types.constants import (
    FILLER_PREFIX,
    NAMESPACE,
    PLACEHOLDER_PREFIX,
    VGPU_RESOURCE,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES, PODS, RESOURCE_SLICES
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control_tier.stored import (
    Raw,
    being_deleted,
    bind,
    bound,
    ended,
    gated,
    holders,
    owners,
    requested,
    set_running,
    set_unschedulable,
    wanted_nodes,
    without_holders_of,
)

GARBAGE_COLLECTED = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
"""Propagation policy of a deletion -> the finalizer of the garbage collector."""

BY_EXTENDER = "kube-scheduler-with-an-extender"
"""The scheduler of pods that a test schedules itself, by calls of the extender."""


class Actors:
    """kube-scheduler, kubelets, node agents and the garbage collector.

    Attributes:
        prepared: uid of a pod -> the vGPU that its node has prepared for it.
        node_agents: False while the node agents are down.
        binds: False while kube-scheduler finds no CPU for pods that share GPUs.
        given: uid of a pod with a whole GPU -> the UUID of that GPU.
        last_first: whether device plugins allocate the last of their free GPUs first.
        sliced: nodes whose GPUs cannot be shared.
        by_claims: node -> the number of GPUs that a DRA driver serves there, instead of a
            device plugin.
        full: nodes without CPU for pods that share GPUs.
        controllers: uid of a workload -> creates one of its pods, and its number of replicas.
        machines: the nodes on which the real agent runs, with a kubelet of their own.
        devices: node -> its GPUs, as its agent reports them.
        binds_whole: False while kube-scheduler binds no pods of users.
        outdated: nodes whose agent is of an earlier version.
        removes: False while kubelets do not remove deleted pods.
    """

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.prepared: dict[str, str] = {}
        self.node_agents = True
        self.binds = True
        self.given: dict[str, str] = {}
        self.last_first = False
        self.sliced: set[str] = set()
        self.by_claims: dict[str, int] = {}
        self.full: set[str] = set()
        self.controllers: dict[str, tuple[Callable[[], object], int]] = {}
        self.machines: dict[str, Machine] = {}
        self.devices: dict[str, list[Raw]] = {}
        self.binds_whole = True
        self.outdated: set[str] = set()
        self.removes = True
        self._wake = asyncio.Event()
        server.storage.after_change.append(lambda *_: self._wake.set())

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0.01)
            self.reconcile()

    def reconcile(self) -> None:
        """Each actor does what the current objects require."""
        self._collect()
        collect_claims(self.server)
        self._collect_of_nodes()
        self._replace()
        self._lose()
        self._forget_given()
        for pod in self.server.view(PODS):
            if not (bound(pod) or being_deleted(pod) or ended(pod) or gated(pod)):
                self._schedule(pod)
        for pod in self.server.view(PODS):
            if bound(pod) and pod["spec"]["nodeName"] not in self.machines:
                self._run_pod(pod)
        for machine in self.machines.values():
            machine.reconcile()
        if self.node_agents and not self.machines:
            self.publish()
            self._report_users()
            for vgpu in self.server.view(VGPUS):
                self._name_gpu(vgpu)
            self._release()

    def _collect(self) -> None:
        """Acts as the garbage collector for the pods of SharePods."""
        sharepods = {each["metadata"]["uid"]: each for each in self.server.view(SHAREPODS)}
        kept = set()
        for pod in self.server.view(PODS):
            for owner in pod["metadata"].get("ownerReferences", ()):
                sharepod = sharepods.get(owner["uid"])
                if owner["kind"] != SHAREPODS.kind:
                    continue
                if sharepod is not None and "orphan" in _finalizers(sharepod):
                    self._update(pod, _disown)
                elif sharepod is None or "foregroundDeletion" in _finalizers(sharepod):
                    kept.add(owner["uid"])
                    self.delete(pod)
        for uid, sharepod in sharepods.items():
            done = set(_finalizers(sharepod)) & set(GARBAGE_COLLECTED.values())
            if done and uid not in kept:
                self._finalize(sharepod, done)

    def _finalize(self, sharepod: Raw, done: set[str]) -> None:
        name, namespace = sharepod["metadata"]["name"], sharepod["metadata"]["namespace"]
        left = [each for each in _finalizers(sharepod) if each not in done]
        self.server.change(
            SHAREPODS, name, namespace, lambda obj: obj["metadata"].update(finalizers=left)
        )

    def _collect_of_nodes(self) -> None:
        """Removes the objects of nodes that are gone."""
        nodes = {node["metadata"]["uid"] for node in self.server.view(NODES)}
        for kind in (GPUNODES, RESOURCE_SLICES):
            for found in self.server.view(kind):
                if not nodes.issuperset(owners(found)):
                    self.server.remove(kind, found["metadata"]["name"])

    def _replace(self) -> None:
        """Acts as the ReplicaSet controller: creates the pods that are missing."""
        for controller, (make, count) in self.controllers.items():
            pods = [pod for pod in self.server.view(PODS) if controller in owners(pod)]
            alive = [pod for pod in pods if not being_deleted(pod) and not ended(pod)]
            for _ in range(count - len(alive)):
                make()

    def _lose(self) -> None:
        """Acts as kube-controller-manager for pods of nodes that are gone."""
        nodes = {node["metadata"]["name"] for node in self.server.view(NODES)}
        for pod in self.server.view(PODS):
            if bound(pod) and pod["spec"]["nodeName"] not in nodes:
                self.server.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def delete(self, pod: Raw) -> None:
        """Deletes a pod as a client does: a bound pod first has to end."""
        self.server.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _schedule(self, pod: Raw) -> None:
        if pod["spec"].get("schedulerName") == BY_EXTENDER:
            return
        wanted = self._wanted_nodes(pod)
        full = set(wanted) if not self.binds else self.full
        nodes = [node for node in wanted if node not in full or not requested(pod, VGPU_RESOURCE)]
        if not self.binds_whole and pod["metadata"]["namespace"] != NAMESPACE:
            nodes = []
        message = "0/1 nodes: insufficient nvidia.com/gpu" if nodes else "insufficient cpu"
        node = next((each for each in nodes if self._room(each, pod)), None)
        if node is None:
            self._update(pod, partial(set_unschedulable, message))
            return
        self._update(pod, partial(bind, node))

    def _wanted_nodes(self, pod: Raw) -> list[str]:
        wanted = pod["spec"].get("nodeSelector", {}).items()
        tolerations = pod["spec"].get("tolerations", ())
        everywhere = any(each.get("operator") == "Exists" for each in tolerations)
        nodes = [
            each
            for each in self.server.view(NODES)
            if everywhere or not each["spec"].get("unschedulable")
        ]
        names = [
            node["metadata"]["name"]
            for node in nodes
            if wanted <= node["metadata"].get("labels", {}).items()
        ]
        return wanted_nodes(pod, names)

    def _room(self, node: str, pod: Raw) -> bool:
        if pod["spec"].get("resourceClaims"):
            return can_allocate(self.server, node, pod)
        offered = self.server.find(NODES, node)
        assert offered is not None
        counted = offered["status"]["allocatable"].get(WHOLE_GPU_RESOURCE, 0)
        has = self.by_claims.get(node, int(counted))
        used = sum(
            requested(other, WHOLE_GPU_RESOURCE)
            for other in self.server.view(PODS)
            if other["spec"].get("nodeName") == node and not ended(other)
        )
        return used + requested(pod, WHOLE_GPU_RESOURCE) <= has

    def _run_pod(self, pod: Raw) -> None:
        if being_deleted(pod):
            if self.removes:
                self.server.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        elif pod["status"]["phase"] == "Pending" and self._prepare(pod):
            if requested(pod, WHOLE_GPU_RESOURCE):
                self._give(pod)
            elif selected := selected_gpus(self.server, pod):
                self.given[pod["metadata"]["uid"]] = selected[0]
            self._update(pod, set_running)

    def _report_users(self) -> None:
        """Reports which GPUs filler pods and native pods have, as the node agents do."""
        users = {
            self.given.get(pod["metadata"]["uid"], ""): pod["metadata"]["name"]
            for pod in self.server.view(PODS)
            if not pod["metadata"]["name"].startswith(PLACEHOLDER_PREFIX) and not ended(pod)
        }
        for found in self.server.view(GPUNODES):
            devices = found["spec"]["devices"]
            now = [device | _use(users.get(device["uuid"], "")) for device in devices]
            if any(
                device != {"filler": "", "inUse": False} | before
                for device, before in zip(now, devices, strict=True)
            ):
                name = found["metadata"]["name"]
                self.server.change(GPUNODES, name, "", partial(_set_devices, now))

    def publish(self) -> None:
        """Creates the GPUNode of each node that has none, as its agent does."""
        for node in self.server.view(NODES):
            name, uid = node["metadata"]["name"], node["metadata"]["uid"]
            if self.server.find(GPUNODES, name) is None:
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
                metadata = {"name": name, "ownerReferences": [owner]}
                supported = {"supportsOwned": True, "supportsShares": name not in self.outdated}
                spec = {"devices": self.devices[name], **supported}
                self.server.seed(GPUNODES, {"metadata": metadata, "spec": spec})

    def _prepare(self, pod: Raw) -> bool:
        """Whether a pod may start: the uid of a pod that shares a GPU is in a holder."""
        if not requested(pod, VGPU_RESOURCE):
            return True
        uid = pod["metadata"]["uid"]
        for vgpu in self.server.view(VGPUS):
            here = vgpu["spec"]["nodeName"] == pod["spec"]["nodeName"] and vgpu["spec"].get("uuid")
            if self.node_agents and here and uid in [each["podUid"] for each in holders(vgpu)]:
                self.prepared[uid] = vgpu["metadata"]["name"]
                return True
        return False

    def _name_gpu(self, vgpu: Raw) -> None:
        name = vgpu["metadata"]["name"]
        placeholder = self.server.find(PODS, f"kubeshare-vgpu-{name}", "kubeshare-system")
        uid = placeholder["metadata"]["uid"] if placeholder else ""
        spec, gpu = vgpu["spec"], self.given.get(uid, "")
        running = placeholder is not None and placeholder["status"]["phase"] == "Running"
        if not running or not gpu or spec.get("uuid", gpu) != gpu:
            return
        others = [each["spec"].get("uuid") for each in self.server.view(VGPUS) if each != vgpu]
        if gpu in others:
            return  # that vGPU is being deleted
        if vgpu["spec"]["nodeName"] in self.sliced:
            self._refuse(vgpu, "NotShareable", "its GPU cannot be shared: it is a MIG instance")
            return
        device = self._device(vgpu["spec"]["nodeName"], gpu)
        model = device["model"] if device else ""
        if not spec.get("uuid") and spec.get("model", model) not in ("", model):
            self._refuse(vgpu, "OtherModel", f"its placeholder was given a GPU of model {model}")
            return
        held = sum(each["memoryBytes"] for each in holders(vgpu))
        if device and not spec.get("uuid") and held > device["memoryBytes"]:
            self._refuse(vgpu, "OtherModel", "its placeholder was given a GPU of less memory")
            return
        found = {"uuid": gpu, "placeholderUid": uid}
        if device:
            found["memoryBytes"] = device["memoryBytes"]
        if found.items() - spec.items():
            self.server.change(VGPUS, name, "", lambda obj: obj["spec"].update(found))

    def _device(self, node: str, uuid: str) -> Raw | None:
        found = self.server.find(GPUNODES, node)
        devices = found["spec"]["devices"] if found else []
        return next((each for each in devices if each["uuid"] == uuid), None)

    def _refuse(self, vgpu: Raw, reason: str, message: str) -> None:
        """Sets the condition of a vGPU whose GPU cannot be used, as the node agent does."""
        condition = {"type": "Shareable", "status": "False", "reason": reason}
        condition["message"] = message
        condition["lastTransitionTime"] = "2026-01-01T00:00:30Z"
        if vgpu["status"].get("conditions") != [condition]:
            name, update = vgpu["metadata"]["name"], {"conditions": [condition]}
            self.server.change(VGPUS, name, "", partial(_set_status, update))

    def _forget_given(self) -> None:
        """Frees the whole GPUs of pods that have ended."""
        alive = {each["metadata"]["uid"] for each in self.server.view(PODS) if not ended(each)}
        self.given = {uid: gpu for uid, gpu in self.given.items() if uid in alive}

    def _give(self, pod: Raw) -> None:
        """Allocates a free GPU of its node to a pod, as a device plugin does."""
        node = pod["spec"]["nodeName"]
        found = self.server.find(GPUNODES, node)
        self._forget_given()
        gpus = [gpu["uuid"] for gpu in found["spec"]["devices"]] if found else []
        free = [gpu for gpu in gpus if gpu not in self.given.values()]
        if free:
            self.given[pod["metadata"]["uid"]] = free[-1 if self.last_first else 0]

    def _release(self) -> None:
        """Removes holders whose containers have stopped, as the node agent does."""
        alive = {pod["metadata"]["uid"] for pod in self.server.view(PODS) if not ended(pod)}
        for vgpu in self.server.view(VGPUS):
            if self.server.find(NODES, vgpu["spec"]["nodeName"]) is None:
                continue
            gone = {each["podUid"] for each in holders(vgpu) if each["podUid"]} - alive
            if update := without_holders_of(gone, vgpu):
                name = vgpu["metadata"]["name"]
                self.server.change(VGPUS, name, "", partial(_set_status, update))
        self.prepared = {uid: gpu for uid, gpu in self.prepared.items() if uid in alive}

    def _update(self, pod: Raw, mutate: Any) -> None:
        self.server.change(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], mutate)


def _use(pod: str) -> Raw:
    """The fields of a device that the pod of this name has as a whole GPU; ``""`` for none."""
    fills = pod.startswith(FILLER_PREFIX)
    return {"filler": pod if fills else "", "inUse": bool(pod) and not fills}


def _set_devices(devices: list[Raw], obj: Raw) -> None:
    obj["spec"]["devices"] = devices


def _set_status(update: Raw, obj: Raw) -> None:
    obj["status"].update(update)


def _finalizers(obj: Raw) -> list[str]:
    found: list[str] = obj["metadata"].get("finalizers", [])
    return found


def _disown(pod: Raw) -> None:
    del pod["metadata"]["ownerReferences"]
