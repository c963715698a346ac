"""Creates the pods of SharePods, and records bound pods in their holders.

The pod is the SharePod's spec with two additions: the node of its GPUs, as node affinity so that
kube-scheduler still checks everything else, and the resource by which the kubelet asks the node
agent for the GPUs.

The pod's uid is written into its holders when the pod is bound, not before. So nothing has run of
a pod whose holder has no pod uid, and the node agent, which waits for that uid, gives the GPUs to
no other pod.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubeshare.api.affinity_terms import require_node
from kubeshare.api.holders import holder_of
from kubeshare.api.state.cluster_state import ClusterState
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
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.core.demand import Share
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pod_assignment import PodAssignments
from kubeshare.dialects.containers import CONTAINER_FIELDS, sharing_containers
from kubeshare.dialects.shares import SHARE, annotations_of
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

_NOT_COPIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the SharePod's manifest, which does not describe the pod."""


class NameTakenError(Exception):
    """A pod of the SharePod's name exists and belongs to another owner."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(
            f"pod {pod.metadata.namespace}/{pod.metadata.name} exists and belongs to "
            "another owner: delete it, or give the SharePod another name"
        )
        self.leaving = pod.metadata.deletion_timestamp is not None


class Pods:
    """Creates the pods of SharePods, and records bound pods in their holders.

    Args:
        client: creates the pods.
        cluster_state: the vGPUs and pods.
        metrics: counts created pods.
    """

    def __init__(self, client: Client, cluster_state: ClusterState, metrics: Metrics) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._assignments = PodAssignments(cluster_state.pool, self._still_runs)
        self._metrics = metrics

    async def create(
        self, sharepod: Raw, vgpus: Sequence[VGPU], shares: Sequence[Share] = ()
    ) -> Pod | None:
        """Create the pod of a SharePod.

        Args:
            sharepod: the SharePod as the API server returned it.
            vgpus: the vGPUs of which it holds shares; none where it asks for no GPU.
            shares: the different shares of its demand; none in the short form.

        Returns:
            the pod, which may have existed before; None when it has gone already.

        Raises:
            NameTakenError: the pod of that name has another owner.
            InvalidError: the spec is invalid; the message is the API server's.
            ApiError: the API server refuses for another reason.
        """
        metadata = sharepod["metadata"]
        try:
            # The schema of a SharePod keeps misspelt fields, which the pod would not have.
            pod = await self._client.create(
                PODS,
                manifest(sharepod, vgpus, shares),
                field_manager=MANAGER_DEVICES,
                strict=True,
            )
        except AlreadyExistsError:
            return await self._existing(metadata["name"], metadata["namespace"], metadata["uid"])
        self._cluster_state.assume_pod(pod)
        self._metrics.pods.inc()
        return pod

    async def exists(self, key: Key) -> bool:
        """Whether the API server has a pod of that name, by a live read."""
        try:
            await self._client.get(PODS, key.name, key.namespace)
        except NotFoundError:
            return False
        return True

    async def assign_holders(self, pod: Pod, demand_uid: str, gpuids: Sequence[str]) -> None:
        """Write the uid of a bound pod into the holders of its demand that have none.

        While one of the holders is missing, or its GPU is not known, none gets the uid: the pod
        must not run with fewer GPUs, and without the uid nothing of it runs.

        Raises:
            ConflictError: a vGPU has changed again and again.
        """
        held = {
            vgpu.metadata.name: holder
            for vgpu in self._pool.named(pod.spec.node_name, gpuids, demand_uid)
            if vgpu.spec.uuid and (holder := holder_of(vgpu, demand_uid))
        }
        if len(held) < len(gpuids):
            return
        for name, holder in held.items():
            if not holder.pod_uid:
                # With several vGPUs the waits would add up.
                await self._assignments.assign(
                    name, demand_uid, pod.metadata.uid, gather=len(held) == 1
                )

    def _still_runs(self, holder: Holder, pod_uid: str) -> bool:
        """Whether the pod of a holder is this one and has not ended."""
        pod = self._cluster_state.pod(Key(holder.namespace, holder.name))
        return pod is not None and pod.metadata.uid == pod_uid and not pod.terminal

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
    """Whether a pod belongs to the SharePod of this uid, not to another one of its name."""
    controller = pod.metadata.controller
    return controller is not None and controller.uid == sharepod_uid


async def delete_as_seen(client: Client, pod: Pod) -> None:
    """Delete a pod unless it has changed since it was seen, for example was bound or orphaned.

    Raises:
        NotFoundError: the pod has gone already.
        ConflictError: the pod has changed in between.
    """
    metadata = pod.metadata
    await client.delete(
        PODS,
        metadata.name,
        metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def unschedulable_message(pod: Pod) -> str:
    """What kube-scheduler says about an unschedulable pod."""
    scheduled = pod.condition("PodScheduled")
    return f"kube-scheduler says: {scheduled.message if scheduled else 'no reason given'}"


def manifest(sharepod: Raw, vgpus: Sequence[VGPU], shares: Sequence[Share] = ()) -> dict[str, Any]:
    """The pod of a SharePod.

    Args:
        sharepod: the SharePod as the API server returned it.
        vgpus: the vGPUs of which it holds shares, all on one node; none for a pod without a GPU.
        shares: the different shares of its demand; none in the short form.
    """
    metadata = sharepod["metadata"]
    labels = dict(metadata.get("labels") or {}) | {
        LABEL_ROLE: ROLE_SHAREPOD,
        LABEL_SHAREPOD_UID: metadata["uid"],
    }
    # Admission lets only KubeShare set the label of the vGPU.
    labels.pop(LABEL_VGPU, None)
    spec = {name: value for name, value in sharepod["spec"].items() if name != "gpu"}
    if vgpus:
        labels[LABEL_VGPU] = vgpus[0].metadata.name
        spec.pop("nodeName", None)
        spec["affinity"] = require_node(spec.get("affinity") or {}, vgpus[0].spec.node_name)
        sharers = sharing_containers(sharepod["spec"], shares)
        for kind in CONTAINER_FIELDS:
            if spec.get(kind):
                spec[kind] = [_asking(one) if one["name"] in sharers else one for one in spec[kind]]
    # By these annotations the node agent knows which containers use which share.
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != _NOT_COPIED and not key.startswith(SHARE)
    }
    annotations |= annotations_of(shares)
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
    """The container, asking for its pod's share of the GPU."""
    resources = dict(container.get("resources") or {})
    resources["limits"] = {**(resources.get("limits") or {}), VGPU_RESOURCE: "1"}
    return {**container, "resources": resources}
