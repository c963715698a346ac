"""A node that is no more takes its vGPUs with it.

Whoever ran on a GPU is taken off it by its node, which alone knows when the containers
have stopped. A node whose Node object has been deleted will never say so: then its
holders leave as soon as their pods are gone, and the vGPU goes. That frees nothing which
others could take: a GPU is offered again only when its node is back, whose agent drops
grants without a holder before it makes new ones. A node that is only not ready keeps all.

That the node and the pod are gone is believed only when the API server says so now.
"""

from kubeshare.api import cluster, holders
from kubeshare.api.pool import Pool, holder_of
from kubeshare.api.v1 import VGPU, Holder
from kubeshare.devices.events import Events
from kubeshare.kube.api import Api
from kubeshare.kube.errors import NotFoundError
from kubeshare.kube.store import Store


class LostNodes:
    """Gives back the GPUs of nodes that were deleted.

    Args:
        api: for live reads.
        nodes: the nodes, as last seen.
        pool: the vGPUs.
        events: tells people.
    """

    def __init__(self, api: Api, nodes: Store[cluster.Node], pool: Pool, events: Events) -> None:
        self._api = api
        self._nodes = nodes
        self._pool = pool
        self._events = events

    async def release(self, vgpu: VGPU) -> tuple[VGPU | None, bool]:
        """Take off the holders of a vGPU whose node is no more and whose pods are gone.

        Returns:
            the vGPU as it is then, None when it is gone; and whether its node is no more.
        """
        if not await self._is_gone(vgpu.spec.node_name):
            return vgpu, False
        current: VGPU | None = vgpu
        for holder in vgpu.status.holders:
            if holder.pod_uid and not await self._may_run(holder):
                current = await self._take_off(vgpu.metadata.name, holder)
                self._events.node_lost(vgpu, holder)
        return current, True

    async def _is_gone(self, node: str) -> bool:
        if self._nodes.get(node) is not None:
            return False
        try:
            await self._api.get(cluster.NODES, node)
        except NotFoundError:
            return True
        return False

    async def _may_run(self, holder: Holder) -> bool:
        try:
            pod = await self._api.get(cluster.PODS, holder.name, holder.namespace)
        except NotFoundError:
            return False
        return pod.metadata.uid == holder.pod_uid and not pod.terminal

    async def _take_off(self, gpuid: str, holder: Holder) -> VGPU | None:
        def operations(vgpu: VGPU) -> list[holders.Operation] | None:
            present = holder_of(vgpu, holder.demand)
            if present is None or present.pod_uid != holder.pod_uid:
                return None
            return holders.remove(vgpu, holder.demand, holder.container)

        return await self._pool.change(gpuid, operations)
