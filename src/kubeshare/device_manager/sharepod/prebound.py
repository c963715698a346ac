"""Pods that are made before their GPU is known, and taken back when it does not come.

Once kube-scheduler has bound the placeholder of a new vGPU, the GPU is counted as taken for it.
Which one it is, its node will say in a moment; the SharePod's pod is bound and begins to start
meanwhile, and its node lets no container run before it has the GPU.

Seldom the GPU does not come: the kubelet refuses the placeholder, or gives it what cannot be
shared. The holder of such a pod names no pod, for only a pod whose GPUs are all known is named
to its node: nothing of it can have run. So the pod is deleted, in the very state in which it
was seen, once a live read of the vGPU says the same; what follows is the life of a SharePod
without a pod.
"""

from collections.abc import Sequence

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import Blocker, blocker
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.sharepod.pods import delete_as_seen
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError


class PreboundPods:
    """Looks after pods that wait on their node for a GPU.

    Args:
        client: where pods are.
        cluster_state: the vGPUs and pods.
        placeholders: keep the GPUs.
    """

    def __init__(
        self, client: Client, cluster_state: ClusterState, placeholders: Placeholders
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._placeholders = placeholders

    def is_gpu_assured(self, vgpu: VGPU) -> bool:
        """A new vGPU will have a GPU in a moment, as far as kube-scheduler is concerned."""
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

    async def reconcile(self, pod: Pod, demand: str, vgpus: Sequence[VGPU]) -> Blocker | None:
        """What a pod's GPU waits for; one that gets none is taken back.

        Args:
            pod: of the SharePod.
            demand: the SharePod's uid.
            vgpus: those of which it has a part.

        Raises:
            ConflictError: the pod has changed meanwhile.
        """
        for vgpu in () if pod.terminal else vgpus:
            if pod.spec.node_name not in ("", vgpu.spec.node_name):
                continue  # it was made for a former decision
            blocked = self._missing(vgpu, demand)
            if blocked is not None and not blocked.transient:
                await self._take_back(pod, demand, vgpu)
            if blocked is not None:
                return blocked
        return None

    def _missing(self, vgpu: VGPU, demand: str) -> Blocker | None:
        """What a GPU waits for of which a pod can have had nothing yet."""
        holder = holder_of(vgpu, demand)
        if holder is None or holder.pod_uid or vgpu.spec.uuid:
            return None
        return blocker(vgpu, self._placeholders.of(vgpu.metadata.name))

    async def _take_back(self, pod: Pod, demand: str, vgpu: VGPU) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        live = await self._pool.refresh(vgpu.metadata.name)
        blocked = self._missing(live, demand) if live is not None else None
        if blocked is None or blocked.transient:
            return
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
