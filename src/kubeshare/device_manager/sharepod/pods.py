"""The pod of a SharePod: made when its GPU is there, and named to the node when bound.

The pod is the SharePod's own spec with two things added: the node of its GPU, as an
affinity so that kube-scheduler still checks everything else, and the resource by
which the kubelet asks the node agent for the GPU.

Its uid goes into the holder when the pod is bound, not before: so a holder without
one stands for a pod of which nothing has ever run, and the node agent, which waits
for that uid, gives nothing to any other pod.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubeshare.api.affinity_terms import require_node
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.constants import (
    GROUP,
    LABEL_ROLE,
    LABEL_SHAREPOD_UID,
    LABEL_VGPU,
    MANAGER_DEVICES,
    ROLE_SHAREPOD,
    VGPU_RESOURCE,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pod_assignment import PodAssignments
from kubeshare.dialects.containers import CONTAINER_FIELDS, sharing_containers
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

_NOT_COPIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""What kubectl notes about the SharePod says nothing about the pod."""


class NameTakenError(Exception):
    """A pod of the SharePod's name exists and is somebody else's."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(
            f"pod {pod.metadata.namespace}/{pod.metadata.name} exists and belongs to "
            "somebody else: delete it, or give the SharePod another name"
        )
        self.leaving = pod.metadata.deletion_timestamp is not None


class Pods:
    """Makes the pods of SharePods, and tells nodes which they are.

    Args:
        client: where to make them.
        cluster_state: the vGPUs, and the pods that were seen.
        metrics: counts.
    """

    def __init__(self, client: Client, cluster_state: ClusterState, metrics: Metrics) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._assignments = PodAssignments(cluster_state.pool)
        self._metrics = metrics

    async def create(self, sharepod: Raw, vgpus: Sequence[VGPU]) -> Pod | None:
        """Make the pod of a SharePod.

        Args:
            sharepod: whose pod.
            vgpus: those of which it holds a part; none where it asks for no GPU.

        Returns:
            the pod as it is; None when it has gone again already.

        Raises:
            NameTakenError: somebody else's pod has that name.
            InvalidError: it is no pod; the message has the API server's words.
            ApiError: any other refusal.
        """
        metadata = sharepod["metadata"]
        try:
            pod = await self._client.create(
                PODS, manifest(sharepod, vgpus), field_manager=MANAGER_DEVICES
            )
        except AlreadyExistsError:
            return await self._existing(metadata["name"], metadata["namespace"], metadata["uid"])
        self._cluster_state.assume_pod(pod)
        self._metrics.pods.inc()
        return pod

    async def exists(self, key: Key) -> bool:
        """The API server has a pod of that name now."""
        try:
            await self._client.get(PODS, key.name, key.namespace)
        except NotFoundError:
            return False
        return True

    async def assign_holders(self, pod: Pod, demand: str, gpuids: Sequence[str]) -> None:
        """Write the uid of a bound pod into the holders of a demand, where none is named.

        None is named while one of them is missing, or its GPU is not known: the pod is not to
        run with fewer GPUs, and until it is named nothing of it can have run.

        Raises:
            ConflictError: others changed the vGPU again and again.
        """
        held = {
            gpuid: holder
            for gpuid in gpuids
            if (vgpu := self._pool.get(gpuid))
            and vgpu.spec.uuid
            and (holder := holder_of(vgpu, demand))
        }
        if len(held) < len(gpuids):
            return
        for gpuid, holder in held.items():
            if not holder.pod_uid:
                await self._assignments.assign(gpuid, demand, pod.metadata.uid)

    async def _existing(self, name: str, namespace: str, owner: str) -> Pod | None:
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        if not owned_by(pod, owner):
            raise NameTakenError(pod)
        self._cluster_state.assume_pod(pod)
        return pod


def owned_by(pod: Pod, sharepod_uid: str) -> bool:
    """It is this very SharePod's pod, not that of a namesake."""
    controller = pod.metadata.controller
    return controller is not None and controller.uid == sharepod_uid


async def delete_as_seen(client: Client, pod: Pod) -> None:
    """Delete a pod in the very state in which it was seen: bound or orphaned since, it stays.

    Raises:
        NotFoundError: it has gone already.
        ConflictError: it has changed meanwhile.
    """
    metadata = pod.metadata
    await client.delete(
        PODS,
        metadata.name,
        metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def manifest(sharepod: Raw, vgpus: Sequence[VGPU]) -> dict[str, Any]:
    """The pod of a SharePod.

    Args:
        sharepod: as the API server gave it.
        vgpus: those of which it holds a part, all on one node; none for a pod without a GPU.
    """
    metadata = sharepod["metadata"]
    labels = dict(metadata.get("labels") or {}) | {
        LABEL_ROLE: ROLE_SHAREPOD,
        LABEL_SHAREPOD_UID: metadata["uid"],
    }
    # Which vGPU a pod shares is for us alone to say, and admission lets us say it.
    labels.pop(LABEL_VGPU, None)
    spec = {name: value for name, value in sharepod["spec"].items() if name != "gpu"}
    if vgpus:
        labels[LABEL_VGPU] = vgpus[0].metadata.name
        spec.pop("nodeName", None)
        spec["affinity"] = require_node(spec.get("affinity") or {}, vgpus[0].spec.node_name)
        sharers = sharing_containers(sharepod["spec"])
        for kind in CONTAINER_FIELDS:
            if spec.get(kind):
                spec[kind] = [_asking(one) if one["name"] in sharers else one for one in spec[kind]]
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_NOT_COPIED, None)
    owner = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "SharePod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _asking(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container, asking for its pod's part of the GPU."""
    resources = dict(container.get("resources") or {})
    resources["limits"] = {**(resources.get("limits") or {}), VGPU_RESOURCE: "1"}
    return {**container, "resources": resources}
