"""Releases the holders of vGPUs whose node was deleted.

Normally the node agent releases a holder, because only the node knows when the containers have
stopped. A deleted Node object will never report that. Its holders are released once their pods
are gone, and then the vGPU is deleted. This frees nothing that others could take: the GPU is
offered again only when the node is back. Its agent then revokes the grants without a holder; those
of pods that still run it keeps, and its GPUNode names these pods (``unrecordedPods``), so their
GPUs take no others. A node that is only not ready keeps its holders.

Live reads confirm that the node and the pods are gone.
"""

from typing import Final

from kubeshare.api import holders
from kubeshare.api.holders import holder_of, one_of_each_demand
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.sharepod.pods import owned_by
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import PendingSince

UNBOUND_HOLDER_SECONDS: Final = 5.0
"""Seconds that a holder without a pod may stay on a deleted node."""


class DeletedNodes:
    """Releases holders on deleted nodes.

    Args:
        client: for live reads.
        nodes: the nodes.
        pool: the vGPUs.
        events: records the releases.
    """

    def __init__(
        self, client: Client, nodes: Store[core_v1.Node], pool: VGPUStore, events: Events
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pool = pool
        self._events = events
        self._unbound: PendingSince[str] = PendingSince()  # uids of vGPUs with such holders

    async def release_holders(self, vgpu: VGPU) -> tuple[VGPU | None, bool, RequeueAfter | None]:
        """Release the holders whose pods are gone if the node of a vGPU was deleted.

        Returns:
            the vGPU afterwards, None when it no longer exists; whether its node was deleted;
            and when to reconcile it again.
        """
        if not await self._is_deleted(vgpu.spec.node_name):
            self._unbound.forget(vgpu.metadata.uid)
            return vgpu, False, None
        wait = self._wait(vgpu)
        current: VGPU | None = vgpu
        for holder in one_of_each_demand(vgpu):
            due = holder.pod_uid or wait is None
            if due and not await self._may_run(holder):
                current = await self._release(vgpu.metadata.name, holder)
                self._events.node_lost(vgpu, holder)
        return current, True, wait

    def _wait(self, vgpu: VGPU) -> RequeueAfter | None:
        """How long holders without a pod still stay; None when that time is over."""
        uid = vgpu.metadata.uid
        if all(holder.pod_uid for holder in vgpu.status.holders):
            self._unbound.forget(uid)
            return None
        left = self._unbound.remaining(uid, UNBOUND_HOLDER_SECONDS)
        return RequeueAfter(left) if left > 0 else None

    async def _is_deleted(self, node: str) -> bool:
        if self._nodes.get(node) is not None:
            return False
        try:
            await self._client.get(core_v1.NODES, node)
        except NotFoundError:
            return True
        return False

    async def _may_run(self, holder: Holder) -> bool:
        try:
            pod = await self._client.get(core_v1.PODS, holder.name, holder.namespace)
        except NotFoundError:
            return False
        uid = pod.metadata.uid
        if holder.pod_uid:
            return uid == holder.pod_uid and not pod.terminal
        return holder.demand == uid or owned_by(pod, holder.demand)

    async def _release(self, name: str, holder: Holder) -> VGPU | None:
        def operations(vgpu: VGPU) -> list[holders.Operation] | None:
            present = holder_of(vgpu, holder.demand)
            if present is None or present.pod_uid != holder.pod_uid:
                return None
            return holders.remove(vgpu, holder.demand)

        return await self._pool.update(name, operations)
