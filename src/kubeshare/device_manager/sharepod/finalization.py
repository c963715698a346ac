"""Keeps a deleted SharePod until its pod has gone.

So a deletion of the SharePod can wait for its containers. A finalizer keeps it (see
:mod:`kubeshare.api.finalizer`):

1. the pod is deleted, in exactly the state that was seen: with ``--cascade=orphan`` the garbage
   collector may remove the SharePod from the pod's owners at the same time, and then it runs on;
2. when a live read no longer finds the pod, the finalizer is removed, and the SharePod is gone.

A pod object is gone when its node reports that the containers have stopped, or when it is deleted
by force. A node that does not answer reports nothing; then the SharePod stays, and its condition
says why.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from kubeshare.api import finalizer, sharepods
from kubeshare.api.finalizer import Operation
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SHAREPODS, SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.pods import delete_as_seen, owned_by
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.resources import Raw

OVERDUE_AFTER: Final = timedelta(seconds=30)
"""How long after its grace period a pod may stay before the status reports it."""


class Finalizations:
    """Adds our finalizer to SharePods, and removes it after their pods have gone.

    Args:
        client: writes SharePods and deletes pods.
        cluster_state: the vGPUs and pods.
        status_writer: writes the status.
        events: records pods that do not stop.
        wall_clock: the current time, timezone-aware.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        status_writer: StatusWriter,
        events: Events,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._status_writer = status_writer
        self._events = events
        self._wall_clock = wall_clock

    async def add_finalizer(self, raw: Raw, sharepod: SharePod) -> Raw | None:
        """Add the finalizer to a SharePod whose pod is about to be created.

        Returns:
            the SharePod afterwards; None when it no longer exists.

        Raises:
            ConflictError: the SharePod has changed in between.
        """
        operations = finalizer.add(sharepod)
        if not operations:
            return raw
        metadata = sharepod.metadata
        unchanged = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata.resource_version,
        }
        return await self._patch(sharepod, [unchanged, *operations])

    async def reconcile(self, raw: Raw, sharepod: SharePod) -> RequeueAfter | None:
        """Delete the pod of a deleted SharePod that has our finalizer, or remove the finalizer.

        Raises:
            ConflictError: the SharePod or its pod has changed in between.
        """
        if finalizer.ORPHAN in sharepod.metadata.finalizers:
            await self._remove_finalizer(sharepod)
            return None
        pod = self._cached_pod(sharepod)
        if pod is None or self._is_overdue(pod):
            pod = await self._live_pod(sharepod)
        if pod is None or not await self._delete(pod):
            await self._remove_finalizer(sharepod)
            return None
        return await self._report(raw, sharepod, pod)

    def _cached_pod(self, sharepod: SharePod) -> Pod | None:
        pod = self._cluster_state.pod(sharepod.metadata.key)
        return pod if pod is not None and owned_by(pod, sharepod.metadata.uid) else None

    async def _live_pod(self, sharepod: SharePod) -> Pod | None:
        metadata = sharepod.metadata
        try:
            pod = await self._client.get(PODS, metadata.name, metadata.namespace)
        except NotFoundError:
            return None
        return pod if owned_by(pod, metadata.uid) else None

    async def _delete(self, pod: Pod) -> bool:
        """Delete a pod unless it is being deleted; False when it no longer exists."""
        if pod.metadata.deletion_timestamp is not None:
            return True
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return False
        return True

    async def _remove_finalizer(self, sharepod: SharePod) -> None:
        await self._patch(sharepod, finalizer.remove(sharepod))

    async def _patch(self, sharepod: SharePod, operations: Sequence[Operation]) -> Raw | None:
        """Apply a JSON patch; returns the SharePod afterwards, None when it no longer exists."""
        metadata = sharepod.metadata
        try:
            return await self._client.json_patch(
                SHAREPODS,
                metadata.name,
                operations,
                metadata.namespace,
                field_manager=MANAGER_DEVICES,
            )
        except NotFoundError:
            return None

    async def _report(self, raw: Raw, sharepod: SharePod, pod: Pod) -> RequeueAfter | None:
        """Write that the pod is being stopped, and why where that takes too long."""
        gpuids, uid = sharepods.gpuids(sharepod), sharepod.metadata.uid
        vgpus = self._cluster_state.pool.named(sharepod.spec.node_name, gpuids, uid)
        overdue = _overdue_message(pod) if self._is_overdue(pod) else ""
        report = status.stopping(pod, vgpus, sharepod.status.gpus, overdue)
        written, again = await self._status_writer.write(sharepod, report, self._demand(raw))
        if written and overdue:
            self._events.not_stopping(sharepod, overdue)
        return earliest(again, None if overdue else RequeueAfter(self._left(pod)))

    def _demand(self, raw: Raw) -> Demand | None:
        try:
            return self._cluster_state.demands.of_sharepod(raw)
        except InvalidValueError:
            return None

    def _is_overdue(self, pod: Pod) -> bool:
        return self._left(pod) <= 0

    def _left(self, pod: Pod) -> float:
        """Seconds until the pod is overdue."""
        # The deletion timestamp of a pod is the end of its grace period.
        ends = pod.metadata.deletion_timestamp
        now = self._wall_clock()
        since = datetime.fromisoformat(ends) if ends else now
        return (since + OVERDUE_AFTER - now).total_seconds()


def _overdue_message(pod: Pod) -> str:
    """Why a pod that should have gone may still exist."""
    metadata = pod.metadata
    if metadata.finalizers:
        return f"its pod is kept by others' finalizers: {', '.join(metadata.finalizers)}"
    return (
        f"node {pod.spec.node_name} has not said that its containers have stopped: see whether "
        "the node is ready. If it will not come back, delete the Node object, or run `kubectl "
        f"delete pod {metadata.name} -n {metadata.namespace} --force --grace-period=0`"
    )
