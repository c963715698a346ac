"""Give a GPU back to Kubernetes: the placeholder first, then the vGPU.

In this order a vGPU object never says less than what is taken. Whoever is cut off
in between sees ``Deleting`` again and goes on.
"""

from typing import Final

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

PLACEHOLDER_RECHECK_SECONDS: Final = 5.0
"""Seconds until a placeholder that was deleted is looked for again."""


class VGPUDeletion:
    """Takes vGPUs down that are going.

    Args:
        client: where they are.
        cluster_state: the cluster's GPUs and pods.
        placeholders: their pods.
        metrics: counts.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        placeholders: Placeholders,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._placeholders = placeholders
        self._metrics = metrics

    async def delete(self, vgpu: VGPU) -> RequeueAfter | None:
        """One step towards nothing being left; the placeholder's end brings the next.

        Returns:
            when to look again all the same: a placeholder that came and went while the
            watch was broken has no end that anybody tells.
        """
        gpuid = vgpu.metadata.name
        pod = self._placeholders.of(gpuid)
        if pod is not None and (
            pod.metadata.deletion_timestamp is not None or not await self._placeholders.remove(pod)
        ):
            return RequeueAfter(PLACEHOLDER_RECHECK_SECONDS)
        try:
            await self._client.delete(
                VGPUS,
                gpuid,
                uid=vgpu.metadata.uid,
                resource_version=vgpu.metadata.resource_version,
            )
        except NotFoundError:
            await self._cluster_state.pool.refresh(gpuid)
            return None
        self._placeholders.forget(vgpu)
        self._metrics.deleted.inc()
        return None

    async def delete_leftover_placeholder(self, gpuid: str) -> None:
        """A vGPU is gone: so goes its placeholder, unless pods may still run on the GPU."""
        pod = self._placeholders.of(gpuid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if self._cluster_state.sharing_pods(gpuid) or await self._cluster_state.pool.refresh(gpuid):
            return
        await self._placeholders.remove(pod)
