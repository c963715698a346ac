"""Handles pods that are created before their GPU is known.

Once kube-scheduler has bound the placeholder of a new vGPU, a GPU is set apart for it. The node
reports shortly afterwards which GPU that is. The SharePod's pod is bound and starts in parallel;
its node starts no container before it has the GPU.

Rarely the GPU does not come: the kubelet refuses the placeholder, or assigns a GPU that cannot be
shared. The holder of such a pod has no pod uid, since a pod is recorded in its holders only when
all its GPUs are known, so nothing of it has run. The pod is deleted, in exactly the state that was
seen, once a live read of the vGPU confirms this. The SharePod is then reconciled without a pod.
"""

from collections.abc import Sequence

from kubeshare.api.holders import holder_of
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import Blocker, blocker
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.sharepod.pods import delete_as_seen
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError


class PreboundPods:
    """Deletes pods whose GPU does not come.

    Args:
        client: deletes pods.
        cluster_state: the vGPUs and pods.
        placeholders: the placeholder pods of the vGPUs.
    """

    def __init__(
        self, client: Client, cluster_state: ClusterState, placeholders: Placeholders
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._placeholders = placeholders

    def is_gpu_assured(self, vgpu: VGPU) -> bool:
        """Whether kube-scheduler has bound the placeholder of a new vGPU to its node."""
        placeholder = self._placeholders.of(vgpu.metadata.name)
        blocked = blocker(vgpu, placeholder)
        return (
            blocked is not None
            and blocked.transient
            and vgpu.status.phase == "Creating"
            and placeholder is not None
            and placeholder.metadata.deletion_timestamp is None
            and placeholder.spec.node_name == vgpu.spec.node_name
        )

    async def reconcile(self, pod: Pod, demand_uid: str, vgpus: Sequence[VGPU]) -> Blocker | None:
        """Delete a SharePod's pod if one of its GPUs does not come; returns what blocks it.

        Raises:
            ConflictError: the pod has changed in between.
        """
        for vgpu in () if pod.terminal else vgpus:
            if pod.spec.node_name not in ("", vgpu.spec.node_name):
                continue  # it was created for a former decision
            blocked = self._blocker(vgpu, demand_uid)
            if blocked is not None and not blocked.transient:
                await self._delete(pod, demand_uid, vgpu)
            if blocked is not None:
                return blocked
        return None

    def _blocker(self, vgpu: VGPU, demand_uid: str) -> Blocker | None:
        """Why a GPU is not known yet; None where the pod may have used it."""
        holder = holder_of(vgpu, demand_uid)
        if holder is None or holder.pod_uid or vgpu.spec.uuid:
            return None
        return blocker(vgpu, self._placeholders.of(vgpu.metadata.name))

    async def _delete(self, pod: Pod, demand_uid: str, vgpu: VGPU) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        live = await self._pool.refresh(vgpu.metadata.name)
        blocked = self._blocker(live, demand_uid) if live is not None else None
        if blocked is None or blocked.transient:
            return
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
