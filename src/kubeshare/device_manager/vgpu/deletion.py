"""Deletes vGPUs and returns their GPUs to Kubernetes.

Three steps, each of which a restarted program repeats safely:

1. the phase becomes ``Deleting``, in a write that fails if the vGPU has a holder, so that a
   demand which takes a share at the same moment keeps it;
2. the placeholder pod is deleted;
3. the VGPU object is deleted. It goes last, so that the objects never claim less than what
   is in use.
"""

from collections.abc import Callable
from typing import Final

from kubeshare.api import holders
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

PLACEHOLDER_RECHECK_SECONDS: Final = 5.0
"""Seconds between checks whether a deleted placeholder has gone."""


async def mark_deleting(pool: VGPUStore, name: str, record: Callable[[VGPU], None]) -> VGPU | None:
    """Set the phase of a vGPU to Deleting unless it has a holder.

    Calls ``record`` when this call has marked it. Returns the vGPU afterwards; None when it
    no longer exists.
    """
    before = pool.get(name)
    after = await pool.update(name, _to_deleting)
    was_deleting = before is not None and before.status.phase == DELETING
    if after is not None and after.status.phase == DELETING and not was_deleting:
        record(after)
    return after


class VGPUDeletion:
    """Deletes vGPUs whose phase is Deleting.

    Args:
        client: deletes the VGPU objects.
        cluster_state: the GPUs and pods of the cluster.
        placeholders: finds and deletes placeholder pods.
        metrics: counts deleted vGPUs.
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

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Delete the placeholder or, once it has gone, the VGPU object.

        The deletion of the placeholder triggers the next reconcile. It is requeued all the
        same: a placeholder may have come and gone while the watch was disconnected.
        """
        name = vgpu.metadata.name
        pod = self._placeholders.of(name)
        if pod is not None and (
            pod.metadata.deletion_timestamp is not None or not await self._placeholders.remove(pod)
        ):
            return RequeueAfter(PLACEHOLDER_RECHECK_SECONDS)
        try:
            await self._client.delete(
                VGPUS,
                name,
                uid=vgpu.metadata.uid,
                resource_version=vgpu.metadata.resource_version,
            )
        except NotFoundError:
            await self._cluster_state.pool.refresh(name)
            return None
        self._placeholders.forget(vgpu)
        self._metrics.deleted.inc()
        return None

    async def delete_leftover_placeholder(self, name: str) -> None:
        """Delete the placeholder of a vGPU that no longer exists.

        It stays while pods may still run on the GPU.
        """
        pod = self._placeholders.of(name)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if self._cluster_state.sharing_pods(name) or await self._cluster_state.pool.refresh(name):
            return
        await self._placeholders.remove(pod)


def _to_deleting(vgpu: VGPU) -> list[holders.Operation] | None:
    if vgpu.status.holders or vgpu.status.phase == DELETING:
        return None
    return holders.set_phase(vgpu, DELETING)
