"""The life of a plain pod once its gate is gone: bound, or nowhere to go.

Its uid is its demand's, so whether it shares a GPU is known from the holders alone, which
nobody can forge. When kube-scheduler has bound it, its uid goes into its holders, and the
node gives it the GPU.

One that is bound and has lost a part before that begins again (:mod:`.taken_back`).

Where kube-scheduler finds no room for it after all, nothing that was decided can be taken
back: its gate cannot be closed again. One that has a controller is deleted, in the very
state in which it was seen, and its controller makes another, about which Sched decides
anew; each time that this happens to the same controller its next pod is let wait longer.
One of its own keeps its part and waits for room on its node, and is told so.
"""

import asyncio
from typing import Final

from msgspec import Struct

from kubeshare.api.pods import has_shares, unschedulable
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Pod
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pods import Pods, delete_as_seen
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key

FIRST_WAIT_SECONDS: Final = 10.0
"""Seconds that kube-scheduler gets the first time; doubles with each pod of a controller."""
MAX_WAIT_SECONDS: Final = 600.0
FORGET_AFTER_SECONDS: Final = 3600.0
"""Seconds after which what has happened to a controller's pods is forgotten."""
MAX_CONTROLLERS: Final = 1024
"""Controllers of which that is known; the one that was first goes first."""


class PodController:
    """Brings a plain pod one step on.

    Args:
        client: where pods are.
        cluster_state: the vGPUs and pods.
        pods: tells nodes which pod is theirs.
        lost_allocations: has those begin again that have lost a part before they began.
        events: tells people.
        metrics: counts.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        cluster_state: ClusterState,
        pods: Pods,
        *,
        lost_allocations: LostAllocations,
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._pods = pods
        self._lost_allocations = lost_allocations
        self._events = events
        self._metrics = metrics
        self._since: dict[Key, tuple[str, float]] = {}  # pod -> its uid, unschedulable since
        self._deleted: dict[str, _Deleted] = {}  # uid of a controller

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one pod."""
        pod = self._cluster_state.pod(key)
        held = self._pool.held_by(pod.metadata.uid) if pod is not None else []
        if pod is None or pod.terminal or pod.gated or not (held or has_shares(pod)):
            self._since.pop(key, None)
            self._lost_allocations.forget(key)
            return None
        if pod.spec.node_name:
            self._since.pop(key, None)
            here = {
                vgpu.metadata.name for vgpu in held if vgpu.spec.node_name == pod.spec.node_name
            }
            if here.issuperset(pod.gpuids):
                await self._pods.assign_holders(pod, pod.metadata.uid, pod.gpuids)
            again = await self._lost_allocations.reconcile(pod, pod.metadata.uid, pod.gpuids)
            return RequeueAfter(again) if again else None
        if not unschedulable(pod):
            self._since.pop(key, None)
            return None
        return await self._unschedulable(key, pod)

    async def _unschedulable(self, key: Key, pod: Pod) -> RequeueAfter | None:
        now = asyncio.get_running_loop().time()
        uid, since = self._since.get(key, ("", now))
        if uid != pod.metadata.uid:
            since = now
        self._since[key] = (pod.metadata.uid, since)
        controller = pod.metadata.controller
        times = self._times(controller.uid, now) if controller else 0
        left = since + min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(times, 16)) - now
        if left > 0:
            return RequeueAfter(left)
        reported = pod.condition("PodScheduled")
        words = f"kube-scheduler says: {reported.message if reported else 'no reason given'}"
        if controller is None:
            self._events.pod_unschedulable(pod, words)
            return None
        self._events.pod_deleted_unschedulable(pod, words)
        await self._delete(pod)
        self._note(controller.uid, _Deleted(times + 1, now))
        return None

    async def _delete(self, pod: Pod) -> None:
        """Delete it as it was seen: once it is bound, its state is another."""
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return
        self._metrics.moved.inc()

    def _times(self, controller: str, now: float) -> int:
        known = self._deleted.get(controller)
        return known.times if known is not None and known.at + FORGET_AFTER_SECONDS > now else 0

    def _note(self, controller: str, deleted: "_Deleted") -> None:
        self._deleted.pop(controller, None)
        self._deleted[controller] = deleted
        if len(self._deleted) > MAX_CONTROLLERS:
            del self._deleted[next(iter(self._deleted))]


class _Deleted(Struct, frozen=True):
    """How many pods of a controller were deleted, and when the last one was (loop time)."""

    times: int
    at: float
