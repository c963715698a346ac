"""Caches this node's VGPUs and pods.

The API server filters both watches by the node's name, so that an agent costs the same in
a cluster of ten nodes and of ten thousand.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubeshare.api.types.constants import (
    FILLER_PREFIX,
    NAMESPACE,
    WHOLE_GPU_RESOURCE,
    placeholder_name,
)
from kubeshare.api.types.v1 import VGPU, VGPUS, Holder
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PODS

SUBMITTER: Final = "SUBMITTER"
"""The environment variable by which pods of Gaia name who submitted them, for people."""
_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class NodeContainerLimits(Struct, frozen=True):
    """The limits and requests of a container."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class NodeVariable(Struct, frozen=True):
    """A variable of an environment; ``value`` is ``""`` if the kubelet looks it up elsewhere."""

    name: str = ""
    value: str = ""


class NodeContainerSpec(Struct, frozen=True):
    """A container, its resources, and of its environment :data:`SUBMITTER` alone."""

    name: str = ""
    resources: NodeContainerLimits = field(default_factory=NodeContainerLimits)
    env: tuple[NodeVariable, ...] = ()


class NodeNamed(Struct, frozen=True):
    """Anything with a name."""

    name: str = ""


class NodePodSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The node of a pod, ``""`` until kube-scheduler has bound it, and what it asks for."""

    node_name: str = ""
    containers: tuple[NodeContainerSpec, ...] = ()
    init_containers: tuple[NodeContainerSpec, ...] = ()
    resource_claims: tuple[NodeNamed, ...] = ()


class NodeContainer(Struct, frozen=True, kw_only=True, rename={"container_id": "containerID"}):
    """A container of a pod; ``container_id`` is ``RUNTIME://ID`` once it is created."""

    name: str
    container_id: str = ""


class NodeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A container, and the request of the pod's claim for one of its extended resources."""

    container_name: str = ""
    request_name: str = ""


class NodePodClaim(Struct, frozen=True, kw_only=True, rename="camel"):
    """The claim that kube-scheduler created for a pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[NodeRequest, ...] = ()


class NodePodStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a pod; ``start_time`` is ``""`` until its kubelet has admitted it."""

    phase: str = ""
    start_time: str = ""
    extended_resource_claim_status: NodePodClaim = field(default_factory=NodePodClaim)
    container_statuses: tuple[NodeContainer, ...] = ()
    init_container_statuses: tuple[NodeContainer, ...] = ()
    ephemeral_container_statuses: tuple[NodeContainer, ...] = ()

    @property
    def containers(self) -> Iterator[tuple[str, str]]:
        """The id and the name of each container that was created."""
        for known in (
            *self.container_statuses,
            *self.init_container_statuses,
            *self.ephemeral_container_statuses,
        ):
            if known.container_id:
                yield known.container_id.rpartition("/")[2], known.name


class NodePod(Struct, frozen=True, kw_only=True):
    """The fields of a pod that the agent reads."""

    metadata: ObjectMeta
    spec: NodePodSpec = field(default_factory=NodePodSpec)
    status: NodePodStatus = field(default_factory=NodePodStatus)

    def requests_of(self, claim: str) -> dict[str, str]:
        """Request of a claim → the container that made it; empty if it is not the pod's claim."""
        own = self.status.extended_resource_claim_status
        if own.resource_claim_name != claim:
            return {}
        return {each.request_name: each.container_name for each in own.request_mappings}

    @property
    def ended(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.status.phase in _ENDED_PHASES

    @property
    def uses_whole_gpus(self) -> bool:
        """Whether it may have whole GPUs and is no placeholder; any claim may be for some."""
        if self.metadata.namespace == NAMESPACE:
            return self.metadata.name.startswith(FILLER_PREFIX)
        asks = any(WHOLE_GPU_RESOURCE in each.resources.limits for each in self.spec.containers)
        return asks or bool(self.spec.resource_claims)

    @property
    def over(self) -> bool:
        """Whether it has ended or is being deleted."""
        return self.ended or self.metadata.deletion_timestamp is not None


def strip_environments(pod: NodePod) -> NodePod:
    """A pod without the environments of its containers, but for :data:`SUBMITTER`.

    They are as large as their authors like, and may hold what nobody else should read.
    """
    groups = (pod.spec.containers, pod.spec.init_containers)
    if not any(each.env for group in groups for each in group):
        return pod
    containers, first = (tuple(map(_strip_environment, group)) for group in groups)
    return replace(pod, spec=replace(pod.spec, containers=containers, init_containers=first))


def _strip_environment(container: NodeContainerSpec) -> NodeContainerSpec:
    named = tuple(each for each in container.env if each.name == SUBMITTER)
    return container if named == container.env else replace(container, env=named[:1])


NODE_PODS = PODS.into(NodePod)
NODE_VGPUS = VGPUS.into(VGPU)


class NodeView:
    """The caches of one node, and a way to wait for the next change of its VGPUs.

    Attributes:
        vgpus: the node's VGPUs.
        pods: the node's pods.
    """

    def __init__(self, client: Client, node: str) -> None:
        fields = f"spec.nodeName={node}"
        self.node = node
        self.vgpus: Reflector[VGPU] = Reflector(client, NODE_VGPUS, fields=fields)
        self.pods: Reflector[NodePod] = Reflector(
            client, NODE_PODS, fields=fields, transform=strip_environments
        )
        self._changed = asyncio.Event()
        self.vgpus.subscribe(self._notify)

    async def wait_for_sync(self) -> None:
        """Wait until both caches have been filled once."""
        await self.vgpus.wait_for_sync()
        await self.pods.wait_for_sync()

    def next_change(self) -> asyncio.Event:
        """An event that is set at the next change of a VGPU.

        Get it before you read the cache, so that you miss no change.
        """
        return self._changed

    def _notify(self, _change: Any) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def all_vgpus(self) -> list[VGPU]:
        """This node's VGPUs, by name."""
        return sorted(self.vgpus.store.snapshot().values(), key=lambda vgpu: vgpu.metadata.name)

    def vgpu_of(self, uuid: str) -> VGPU | None:
        """The vGPU of a physical GPU."""
        return next((vgpu for vgpu in self.all_vgpus() if vgpu.spec.uuid == uuid), None)

    def placeholder(self, vgpu: VGPU) -> NodePod | None:
        """The pod that reserves a vGPU's GPU, or None if there is none or it is ending."""
        pod = self.pods.store.get(placeholder_name(vgpu.metadata.name), NAMESPACE)
        return None if pod is None or pod.over else pod

    def is_reserved(self, vgpu: VGPU) -> bool:
        """Whether no other pod can get a vGPU's GPU, according to the cache.

        Its placeholder reserves it; the GPU of a static vGPU is offered to no other pod.
        """
        if vgpu.spec.is_static:
            return True
        pod = self.placeholder(vgpu)
        return pod is not None and vgpu.spec.placeholder_uid in ("", pod.metadata.uid)

    def held_by(self, pod_uid: str) -> list[tuple[VGPU, Holder]]:
        """The holders on this node that name a pod, in the order of their names."""
        return [
            (vgpu, holder)
            for vgpu in self.all_vgpus()
            for holder in vgpu.status.holders
            if pod_uid and holder.pod_uid == pod_uid
        ]

    def containers(self) -> dict[str, tuple[str, str]]:
        """Id of each container of this node → its pod's uid and its name."""
        return {
            container_id: (pod.metadata.uid, name)
            for pod in self.pods.store.snapshot().values()
            for container_id, name in pod.status.containers
        }

    def promised(self) -> set[str]:
        """The UUIDs of the GPUs behind this node's vGPUs, but static ones without holders."""
        return {
            vgpu.spec.uuid
            for vgpu in self.all_vgpus()
            if vgpu.spec.uuid and (vgpu.status.holders or not vgpu.spec.is_static)
        }
