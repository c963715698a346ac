"""A pod for which kube-scheduler finds no room on the node of its GPU goes elsewhere.

Sched looks at GPUs and at what keeps a pod off a node, not at CPU, memory, volumes or
ports: those are kube-scheduler's, which has the last word. Its word may change from one
moment to the next, so it is waited for; the longer, the more often this SharePod has been
moved already. Then, in this order:

1. the pod is deleted, in the very state in which it was seen: once kube-scheduler has bound
   it, its state is another, and nothing happens;
2. when a live read does not find it any more, the SharePod is told that the decision is
   undone and which node is set aside until when, in one conditional write;
3. the parts are given back.

Whoever is killed between these goes on: without (2) the pod is made again and meets the
same fate; without (3) Sched takes back what the SharePod does not name.
"""

import asyncio
from typing import Final

from msgspec import Struct

from kubeshare.api import sharepods
from kubeshare.api.pods import unschedulable
from kubeshare.api.predicates import exclusions
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SharePod
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pods import delete_as_seen
from kubeshare.device_manager.sharepod.rescheduling.reschedule import Rescheduler
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

FIRST_WAIT_SECONDS: Final = 10.0
"""Seconds that kube-scheduler gets the first time; doubles with each move."""
RECHECK_SECONDS: Final = 600.0
"""Seconds until it is asked again whether one that was moved too often may be moved again."""


class UnschedulablePods:
    """Undoes decisions for which kube-scheduler finds no room.

    Args:
        client: where pods and SharePods are.
        cluster_state: the vGPUs and pods.
        rescheduler: undoes a decision.
        metrics: counts.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        rescheduler: Rescheduler,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._rescheduler = rescheduler
        self._metrics = metrics
        self._since: dict[Key, tuple[str, float]] = {}  # SharePod -> pod uid, seen so since
        self._moving: dict[Key, _Move] = {}  # SharePod -> what is to be noted of it

    def forget(self, key: Key) -> None:
        """The SharePod is gone, or its decision is undone."""
        self._since.pop(key, None)
        self._moving.pop(key, None)

    async def reconcile(self, raw: Raw, sharepod: SharePod, pod: Pod | None) -> float | None:
        """Move a SharePod on when its pod has waited for room long enough.

        Args:
            raw: the SharePod.
            sharepod: the same.
            pod: its pod, if it has one.

        Returns:
            seconds until to look again: 0 when the decision is undone; None where it is not
            kube-scheduler's room that the pod waits for.

        Raises:
            ConflictError: pod or SharePod have changed meanwhile.
        """
        if sharepods.is_deleting(sharepod):
            return None
        if pod is not None:
            left = self._patience(sharepod, pod)
            if left == 0 and await self._delete(sharepod, pod):
                await self._undo(raw, sharepod)
            return left
        if self._is_moving(sharepod):
            await self._undo(raw, sharepod)
            return 0.0
        return None

    def _is_moving(self, sharepod: SharePod) -> bool:
        """Its pod has been deleted for want of room, and the decision is to be undone."""
        reschedule = self._moving.get(sharepod.metadata.key)
        return reschedule is not None and reschedule.of == (
            sharepod.metadata.uid,
            sharepod.spec.node_name,
        )

    def _patience(self, sharepod: SharePod, pod: Pod) -> float | None:
        """Seconds that its pod may still wait for room; None where that is no matter of ours."""
        key = sharepod.metadata.key
        if not sharepods.can_reschedule(sharepod) or not unschedulable(pod):
            self._since.pop(key, None)
            if pod.spec.node_name:
                self._moving.pop(key, None)
            return None
        now = asyncio.get_running_loop().time()
        uid, since = self._since.get(key, ("", now))
        if uid != pod.metadata.uid:
            since = now
        self._since[key] = (pod.metadata.uid, since)
        times_rescheduled = self._rescheduler.times_rescheduled(sharepod)
        if times_rescheduled >= exclusions.MAX_RESCHEDULES:
            return RECHECK_SECONDS
        return max(0.0, since + FIRST_WAIT_SECONDS * 2.0**times_rescheduled - now)

    async def _undo(self, raw: Raw, sharepod: SharePod) -> None:
        key = sharepod.metadata.key
        await self._rescheduler.reschedule(raw, sharepod, self._moving[key].message)
        self.forget(key)

    async def _delete(self, sharepod: SharePod, pod: Pod) -> bool:
        """Delete its pod; whether the API server has no such pod any more."""
        key, uid = sharepod.metadata.key, pod.metadata.uid
        reported = pod.condition("PodScheduled")
        words = f"kube-scheduler says: {reported.message if reported else 'no reason given'}"
        self._moving[key] = _Move((sharepod.metadata.uid, sharepod.spec.node_name), words)
        try:
            await delete_as_seen(self._client, pod)
            live = await self._client.get(PODS, key.name, key.namespace)
            gone = live.metadata.uid != uid
        except NotFoundError:
            gone = True
        except ConflictError:
            self._moving.pop(key)
            raise
        if gone:
            self._cluster_state.forget_pod(pod)
            self._metrics.moved.inc()
        return gone


class _Move(Struct, frozen=True):
    """``of``: the SharePod's uid and the node that it leaves; ``message``: why."""

    of: tuple[str, str]
    message: str
