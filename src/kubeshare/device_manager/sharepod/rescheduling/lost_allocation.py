"""Restarts bound pods that lost an allocation before starting.

A leader that was paused may remove a holder that it believes to be orphaned although another
leader has already assigned it and kube-scheduler has bound the pod. Such a pod is never recorded in
its holders, because no pod runs with fewer GPUs than its demand, and the share may belong to
another demand by now. When this state has lasted for a while, and live reads confirm it and that
no container of the pod has started:

* the pod of a SharePod is deleted, in exactly the state that was read; once it has gone, the
  SharePod has neither holder nor pod, and its decision is cleared;
* a plain pod with a controller is evicted, so that its controller creates another;
* for a bare pod an event says what to do.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from kubeshare.api.eviction import evict
from kubeshare.api.holders import holder_of
from kubeshare.api.pod_state import never_started
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SharePod
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pods import delete_as_seen
from kubeshare.device_manager.vgpu.health import Problem
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError, TooManyRequestsError
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Key

RESTART_SECONDS: Final = 30.0
"""Seconds that a holder must be missing before the pod is restarted: no watch lags that much."""
REPORT_SECONDS: Final = 5.0
"""Seconds that a holder must be missing before the status reports it."""
EVICTION_RETRY_SECONDS: Final = 10.0
"""Seconds until an eviction that a disruption budget refused is retried."""


class _Loss(Struct):
    """A pod without all of its holders: its uid, a message, and whether it was dealt with."""

    uid: str
    message: str
    handled: bool = False


class LostAllocations:
    """Restarts pods that lost an allocation before they started.

    Args:
        client: deletes and evicts pods.
        cluster_state: the vGPUs and pods.
        events: records the restarts.
        metrics: counts deleted pods.
    """

    def __init__(
        self, client: Client, cluster_state: ClusterState, events: Events, metrics: Metrics
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._events = events
        self._metrics = metrics
        self._losses: dict[Key, _Loss] = {}
        self._lost: PendingSince[Key] = PendingSince()

    def forget(self, key: Key) -> None:
        """Drop what is known about a pod: it is gone, or has its holders."""
        self._losses.pop(key, None)
        self._lost.forget(key)

    def problem(self, pod: Pod) -> Problem | None:
        """What the status should say of a pod without all of its holders; None at first."""
        key, uid = pod.metadata.key, pod.metadata.uid
        loss = self._losses.get(key)
        if loss is None or loss.uid != uid or self._lost.remaining(key, REPORT_SECONDS, uid):
            return None
        return Reason.PART_TAKEN_BACK, loss.message

    async def reconcile(
        self, pod: Pod, demand_uid: str, gpuids: Sequence[str], sharepod: SharePod | None = None
    ) -> float | None:
        """Restart a pod that has been without one of its holders for long enough.

        Args:
            pod: a pod whose GPUs are decided.
            demand_uid: the uid of its demand.
            gpuids: the vGPUs of its node, or its SharePod's, of which it should hold shares.
            sharepod: its SharePod; None for a plain pod.

        Returns:
            seconds until to check again; None where nothing is missing.

        Raises:
            ConflictError: the pod has changed in between.
        """
        key, uid = pod.metadata.key, pod.metadata.uid
        loss = self._losses.get(key)
        if loss is not None and loss.uid == uid and loss.handled:
            return None
        node = sharepod.spec.node_name if sharepod is not None else pod.spec.node_name
        missing = [gpuid for gpuid in gpuids if not self._has_holder(node, gpuid, demand_uid)]
        if not missing or not pod.spec.node_name or not never_started(pod):
            self.forget(key)
            return None
        if loss is None or loss.uid != uid:
            loss = self._losses[key] = _Loss(uid, _message(missing))
        for seconds in (REPORT_SECONDS, RESTART_SECONDS):
            if left := self._lost.remaining(key, seconds, uid):
                return left
        live = await self._live(pod)
        if live is None or not [
            gpuid for gpuid in missing if await self._is_missing(node, gpuid, demand_uid)
        ]:
            self.forget(key)
            return None
        return await self._restart(live, loss, sharepod)

    async def without_share(self, pod: Pod, message: str) -> float | None:
        """Restart a bound plain pod that can get no share on its node, after a while.

        Args:
            pod: a pod that has not started.
            message: why it gets none.

        Returns:
            seconds until to try again; None if the pod is gone.

        Raises:
            ConflictError: the pod has changed in between.
        """
        key, uid = pod.metadata.key, pod.metadata.uid
        loss = self._losses.get(key)
        if loss is None or loss.uid != uid:
            loss = self._losses[key] = _Loss(uid, message)
        loss.message = message
        left = self._lost.remaining(key, RESTART_SECONDS, uid)
        if left or loss.handled:
            return min(left, REPORT_SECONDS) or EVICTION_RETRY_SECONDS
        live = await self._live(pod)
        if live is None:
            return None
        return await self._restart(live, loss, None) or EVICTION_RETRY_SECONDS

    def _has_holder(self, node: str, gpuid: str, demand_uid: str) -> bool:
        vgpu = self._pool.find(node, gpuid, demand_uid)
        return vgpu is not None and holder_of(vgpu, demand_uid) is not None

    async def _is_missing(self, node: str, gpuid: str, demand_uid: str) -> bool:
        await self._pool.refresh_identity(node, gpuid, demand_uid)
        return not self._has_holder(node, gpuid, demand_uid)

    async def _live(self, pod: Pod) -> Pod | None:
        """The same pod as a live read returns it, if it is bound and has not started."""
        metadata = pod.metadata
        try:
            live = await self._client.get(PODS, metadata.name, metadata.namespace)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return None
        same = live.metadata.uid == metadata.uid
        return live if same and live.spec.node_name and never_started(live) else None

    async def _restart(self, pod: Pod, loss: _Loss, sharepod: SharePod | None) -> float | None:
        """Delete or evict a pod that will not run, or record what its author should do."""
        try:
            if sharepod is not None:
                await delete_as_seen(self._client, pod)
                self._events.allocation_lost(sharepod, loss.message)
            elif pod.metadata.controller is None:
                self._events.pod_allocation_lost(
                    pod, f"{loss.message}: delete it, and make it again"
                )
                loss.handled = True
                return None
            else:
                await evict(self._client, pod)
                self._events.pod_allocation_lost(
                    pod, f"{loss.message}: it is evicted so that its controller makes another"
                )
        except TooManyRequestsError as error:
            self._events.eviction_refused(pod, f"{loss.message}; {error.message}")
            return EVICTION_RETRY_SECONDS
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
        loss.handled = True
        self._metrics.moved.inc()
        return None


def _message(missing: Sequence[str]) -> str:
    return f"its share of vGPU {', '.join(missing)} was taken back before the pod began"
