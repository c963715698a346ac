"""Reschedules SharePods whose pod kube-scheduler finds unschedulable.

Sched considers GPUs and what keeps a pod off a node, but not everything that kube-scheduler
considers: CPU, memory, volumes, ports. kube-scheduler's answer may change at any moment, so the
pod gets some time, and more each time that its SharePod has been rescheduled already. Then, in
this order:

1. the pod is deleted, in exactly the state that was seen: if kube-scheduler has bound it since,
   the deletion fails;
2. when a live read no longer finds the pod, one conditional write clears the decision and records
   which node is excluded until when;
3. the holders are removed.

A program that stops in between goes on: without (2) the pod is created again and is unschedulable
again; without (3) the holders are garbage-collected.
"""

from typing import Final

from msgspec import Struct

from kubeshare.api import sharepods
from kubeshare.api.pod_state import unschedulable
from kubeshare.api.predicates import exclusions
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SharePod
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pods import delete_as_seen, unschedulable_message
from kubeshare.device_manager.sharepod.rescheduling.reschedule import Rescheduler
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

FIRST_WAIT_SECONDS: Final = 10.0
"""Seconds that a pod may be unschedulable the first time; doubles with each reschedule."""
RECHECK_SECONDS: Final = 600.0
"""Seconds between checks whether a SharePod that was rescheduled too often may be again."""


class UnschedulablePods:
    """Gives up decisions for which kube-scheduler finds no room.

    Args:
        client: deletes pods.
        cluster_state: the vGPUs and pods.
        rescheduler: gives up a decision.
        metrics: counts deleted pods.
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
        self._unschedulable: PendingSince[Key] = PendingSince()  # SharePods; the uid is the pod's
        self._deleted: dict[Key, _Deletion] = {}

    def forget(self, key: Key) -> None:
        """Drop what is known about a SharePod: it is gone, or its decision is cleared."""
        self._unschedulable.forget(key)
        self._deleted.pop(key, None)

    async def reconcile(self, raw: Raw, sharepod: SharePod, pod: Pod | None) -> float | None:
        """Reschedule a SharePod whose pod has been unschedulable for long enough.

        Returns:
            seconds until to check again; 0 when the pod is deleted; None where the pod is not
            unschedulable.

        Raises:
            ConflictError: the pod or the SharePod has changed in between.
        """
        if sharepods.is_deleting(sharepod):
            return None
        if pod is not None:
            left = self._remaining(sharepod, pod)
            if left == 0 and await self._delete(sharepod, pod):
                await self._reschedule(raw, sharepod)
            return left
        if self._has_deleted_pod(sharepod):
            await self._reschedule(raw, sharepod)
            return 0.0
        return None

    def _has_deleted_pod(self, sharepod: SharePod) -> bool:
        """Its pod was deleted as unschedulable, and the decision is still to be cleared."""
        deletion = self._deleted.get(sharepod.metadata.key)
        decision = (sharepod.metadata.uid, sharepod.spec.node_name)
        return deletion is not None and deletion.decision == decision

    def _remaining(self, sharepod: SharePod, pod: Pod) -> float | None:
        """Seconds that its pod may still be unschedulable; None where it may stay."""
        key = sharepod.metadata.key
        if not sharepods.can_reschedule(sharepod) or not unschedulable(pod):
            self._unschedulable.forget(key)
            if pod.spec.node_name:
                self._deleted.pop(key, None)
            return None
        times = self._rescheduler.times_rescheduled(sharepod)
        seconds = FIRST_WAIT_SECONDS * 2.0 ** min(times, exclusions.MAX_RESCHEDULES)
        left = self._unschedulable.remaining(key, seconds, pod.metadata.uid)
        return RECHECK_SECONDS if times >= exclusions.MAX_RESCHEDULES else left

    async def _reschedule(self, raw: Raw, sharepod: SharePod) -> None:
        key = sharepod.metadata.key
        await self._rescheduler.reschedule(raw, sharepod, self._deleted[key].message)
        self.forget(key)

    async def _delete(self, sharepod: SharePod, pod: Pod) -> bool:
        """Delete its pod; True when a live read no longer finds the pod."""
        key, uid = sharepod.metadata.key, pod.metadata.uid
        decision = (sharepod.metadata.uid, sharepod.spec.node_name)
        self._deleted[key] = _Deletion(decision, unschedulable_message(pod))
        try:
            await delete_as_seen(self._client, pod)
            live = await self._client.get(PODS, key.name, key.namespace)
            gone = live.metadata.uid != uid
        except NotFoundError:
            gone = True
        except ConflictError:
            self._deleted.pop(key)
            raise
        if gone:
            self._cluster_state.forget_pod(pod)
            self._metrics.moved.inc()
        return gone


class _Deletion(Struct, frozen=True):
    """``decision``: the SharePod's uid and node; ``message``: why its pod was deleted."""

    decision: tuple[str, str]
    message: str
