"""Recreates a lost placeholder; keeps it only on the same GPU.

kube-scheduler gives a new placeholder any free GPU of the node. The node agent records the new
placeholder in the vGPU only if it was assigned the same GPU. A placeholder that is not recorded in
time has another GPU and is deleted. There are few attempts with growing pauses, and none where
none can succeed: the GPU has failed or no longer exists, the node takes no pods, or the vGPU has
no holders and is deleted instead.
"""

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
from kubeshare.kube.controller.pending import NotBefore, PendingSince

MAX_ATTEMPTS: Final = 5
"""How many new placeholders may get another GPU before recovery gives up."""
FIRST_BACKOFF_SECONDS: Final = 2.0
"""Seconds between the first two attempts; doubles with each."""
CONFIRMATION_SECONDS: Final = 20.0
"""Seconds that the node agent has to record a bound placeholder."""


class PlaceholderRecovery:
    """Recreates lost placeholders.

    Args:
        nodes: the nodes.
        placeholders: creates and deletes placeholder pods.
        events: records failed attempts.
    """

    def __init__(self, nodes: Store[Node], placeholders: Placeholders, events: Events) -> None:
        self._nodes = nodes
        self._placeholders = placeholders
        self._events = events
        # All three by the uid of the vGPU.
        self._attempts: Counter[str] = Counter()
        self._next_attempt: NotBefore[str] = NotBefore()
        self._unconfirmed: PendingSince[str] = PendingSince()

    def forget(self, vgpu: VGPU) -> None:
        """Drop what is known about a vGPU: it is gone, or has its placeholder."""
        uid = vgpu.metadata.uid
        self._attempts.pop(uid, None)
        self._next_attempt.forget(uid)
        self._unconfirmed.forget(uid)

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Create, confirm or delete a new placeholder where the recorded one is lost."""
        pod = self._placeholders.of(vgpu.metadata.name)
        if pod is not None and keeps_gpu(pod, vgpu):
            self.forget(vgpu)
            return None
        if pod is not None and pod.metadata.deletion_timestamp is not None:
            return None
        problem = problem_of(vgpu)
        lost = problem is not None and problem[0] == Reason.PLACEHOLDER_LOST
        # Without the uid of the recorded placeholder, any new one would count as confirmed.
        if not lost or not vgpu.status.holders or not vgpu.spec.placeholder_uid:
            return None
        if pod is not None:
            return await self._confirm(vgpu, pod)
        return await self._attempt(vgpu)

    async def _attempt(self, vgpu: VGPU) -> RequeueAfter | None:
        node = self._nodes.get(vgpu.spec.node_name)
        if (
            node is None
            or not node.is_schedulable
            or self._attempts[vgpu.metadata.uid] >= MAX_ATTEMPTS
        ):
            return None
        if left := self._next_attempt.remaining(vgpu.metadata.uid):
            return RequeueAfter(left)
        return await self._placeholders.create(vgpu)

    async def _confirm(self, vgpu: VGPU, pod: Pod) -> RequeueAfter | None:
        """Wait until the agent has recorded a new placeholder; delete it when time is up."""
        uid = vgpu.metadata.uid
        if not pod.terminal:
            if not pod.spec.node_name:
                return None  # it is pending until a GPU is free
            if left := self._unconfirmed.remaining(uid, CONFIRMATION_SECONDS, pod.metadata.uid):
                return RequeueAfter(left)
        # Counted after the deletion, so that an unreachable API server uses up no attempts.
        await self._placeholders.remove(pod)
        backoff = FIRST_BACKOFF_SECONDS * 2.0 ** self._attempts[uid]
        if pod.metadata.uid != vgpu.spec.placeholder_uid:
            self._attempts[uid] += 1
            self._events.other_gpu(vgpu, again=self._attempts[uid] < MAX_ATTEMPTS)
        self._next_attempt.delay(uid, backoff)
        return RequeueAfter(backoff)
