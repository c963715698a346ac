"""A node that is no more takes its vGPUs with it.

Whoever ran on a GPU is taken off it by its node, which alone knows when the containers
have stopped. A node whose Node object has been deleted will never say so: then its
holders leave as soon as their pods are gone, and the vGPU goes. That frees nothing which
others could take: a GPU is offered again only when its node is back, whose agent drops
grants without a holder before it makes new ones. A node that is only not ready keeps all.

That the node and the pod are gone is believed only when the API server says so now.
"""

import asyncio
from typing import Final

from kubeshare.api import holders
from kubeshare.api.state.vgpu_store import VGPUStore, holder_of
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.sharepod.pods import owned_by
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

UNBOUND_HOLDER_SECONDS: Final = 5.0
"""Seconds that a part without a pod may be held on a node that is no more."""


class DeletedNodes:
    """Gives back the GPUs of nodes that were deleted.

    Args:
        client: for live reads.
        nodes: the nodes, as last seen.
        pool: the vGPUs.
        events: tells people.
    """

    def __init__(
        self, client: Client, nodes: Store[core_v1.Node], pool: VGPUStore, events: Events
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pool = pool
        self._events = events
        self._since: dict[str, float] = {}  # uid of a vGPU with parts without a pod -> when seen

    async def release(self, vgpu: VGPU) -> tuple[VGPU | None, bool, RequeueAfter | None]:
        """Take off the holders of a vGPU whose node is no more and whose pods are gone.

        Returns:
            the vGPU as it is then, None when it is gone; whether its node is no more; and
            when to look at it again.
        """
        if not await self._is_gone(vgpu.spec.node_name):
            self._since.pop(vgpu.metadata.uid, None)
            return vgpu, False, None
        wait = self._wait(vgpu)
        current: VGPU | None = vgpu
        for holder in vgpu.status.holders:
            due = holder.pod_uid or wait is None
            if due and not await self._may_run(holder):
                current = await self._take_off(vgpu.metadata.name, holder)
                self._events.node_lost(vgpu, holder)
        return current, True, wait

    def _wait(self, vgpu: VGPU) -> RequeueAfter | None:
        """What is left of the time that parts without a pod are let be; None when it is over."""
        uid = vgpu.metadata.uid
        if all(holder.pod_uid for holder in vgpu.status.holders):
            self._since.pop(uid, None)
            return None
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(uid, now) + UNBOUND_HOLDER_SECONDS - now
        return RequeueAfter(left) if left > 0 else None

    async def _is_gone(self, node: str) -> bool:
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

    async def _take_off(self, gpuid: str, holder: Holder) -> VGPU | None:
        def operations(vgpu: VGPU) -> list[holders.Operation] | None:
            present = holder_of(vgpu, holder.demand)
            if present is None or present.pod_uid != holder.pod_uid:
                return None
            return holders.remove(vgpu, holder.demand)

        return await self._pool.update(gpuid, operations)
