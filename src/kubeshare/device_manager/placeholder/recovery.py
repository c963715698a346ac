"""Have the GPU of a vGPU back when its placeholder was lost.

kube-scheduler gives a new placeholder a GPU of the node, not that very one, so it is a
try: the node's agent notes the new placeholder in the vGPU only when it was given the same
GPU. One that it does not note in time has another, and goes. There are few tries with
growing pauses, and none where none can succeed: the GPU has failed or is no more, the
node takes no pods, or nobody holds a part, so that the vGPU goes instead.
"""

import asyncio
from collections import Counter
from typing import Final

from kubeshare.api.state.ledger_builder import keeps_gpu
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.vgpu.health import problem_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.controller.controller import RequeueAfter

MAX_ATTEMPTS: Final = 5
"""How many new placeholders may be given another GPU before the GPU is given up."""
FIRST_BACKOFF_SECONDS: Final = 2.0
"""Seconds until the second one; doubles with each."""
CONFIRMATION_SECONDS: Final = 20.0
"""Seconds that the node's agent gets to note a placeholder which has been bound."""


class PlaceholderRecovery:
    """Replaces placeholders that were lost.

    Args:
        nodes: the nodes, as last seen.
        placeholders: makes and deletes them.
        events: tells people.
    """

    def __init__(self, nodes: Store[Node], placeholders: Placeholders, events: Events) -> None:
        self._nodes = nodes
        self._placeholders = placeholders
        self._events = events
        self._tries: Counter[str] = Counter()  # uid of a vGPU -> placeholders of another GPU
        self._not_before: dict[str, float] = {}  # uid of a vGPU -> when the next may be made
        self._bound: dict[str, tuple[str, float]] = {}  # uid of a vGPU -> placeholder, since

    def forget(self, vgpu: VGPU) -> None:
        """The vGPU is gone, or has its GPU."""
        for known in (self._tries, self._not_before, self._bound):
            known.pop(vgpu.metadata.uid, None)

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """One step towards a placeholder that has the GPU of a vGPU whose own one is lost."""
        pod = self._placeholders.of(vgpu.metadata.name)
        if pod is not None and keeps_gpu(pod, vgpu):
            self.forget(vgpu)
            return None
        if pod is not None and pod.metadata.deletion_timestamp is not None:
            return None
        problem = problem_of(vgpu)
        lost = problem is not None and problem[0] == Reason.PLACEHOLDER_LOST
        # Without a note of which placeholder had the GPU, any new one would pass for it.
        if not lost or not vgpu.status.holders or not vgpu.spec.placeholder_uid:
            return None
        if pod is not None:
            return await self._judge(vgpu, pod)
        return await self._try(vgpu)

    async def _try(self, vgpu: VGPU) -> RequeueAfter | None:
        node = self._nodes.get(vgpu.spec.node_name)
        if (
            node is None
            or not node.is_schedulable
            or self._tries[vgpu.metadata.uid] >= MAX_ATTEMPTS
        ):
            return None
        wait = self._not_before.get(vgpu.metadata.uid, 0.0) - asyncio.get_running_loop().time()
        if wait > 0:
            return RequeueAfter(wait)
        return await self._placeholders.create(vgpu)

    async def _judge(self, vgpu: VGPU, pod: Pod) -> RequeueAfter | None:
        """Wait for the agent's word about a new placeholder; without one, it goes."""
        uid, now = vgpu.metadata.uid, asyncio.get_running_loop().time()
        if not pod.terminal:
            if not pod.spec.node_name:
                return None  # it waits for a free GPU, as any pod does
            known, since = self._bound.get(uid, ("", now))
            if known != pod.metadata.uid:
                since = now
            self._bound[uid] = (pod.metadata.uid, since)
            if now < since + CONFIRMATION_SECONDS:
                return RequeueAfter(since + CONFIRMATION_SECONDS - now)
        # Counted when it is done, and not each time that the API server was away.
        await self._placeholders.remove(pod)
        pause = FIRST_BACKOFF_SECONDS * 2.0 ** self._tries[uid]
        if pod.metadata.uid != vgpu.spec.placeholder_uid:
            self._tries[uid] += 1
            self._events.other_gpu(vgpu, again=self._tries[uid] < MAX_ATTEMPTS)
        self._not_before[uid] = now + pause
        return RequeueAfter(pause)
