"""A SharePod that is deleted goes when its pod has gone, so that who deletes it can wait.

Our finalizer keeps it (see :mod:`kubeshare.api.finalizer`), and is taken off here:

1. its pod is deleted, in the very state in which it was seen: the garbage collector may take
   the SharePod off its owners meanwhile (``--cascade=orphan``), and then it runs on;
2. when a live read does not find the pod any more, the finalizer goes, and the SharePod with it.

A pod object goes when its node has said that the containers have stopped, or when somebody
has forced it. A node that does not answer says nothing: then this waits, and tells so.
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
"""How long past its grace a pod may take to go before that is told."""


class Finalizations:
    """Has SharePods go after their pods.

    Args:
        client: where SharePods and pods are.
        cluster_state: the vGPUs and pods.
        status_writer: writes the status.
        events: tells people.
        wall_clock: the present, aware.
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
        """Have a SharePod go after the pod that is about to be made.

        Returns:
            the SharePod as it is then; None when it is gone.

        Raises:
            ConflictError: it has changed meanwhile.
        """
        operations = finalizer.add(sharepod)
        if not operations:
            return raw
        metadata = sharepod.metadata
        seen = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata.resource_version,
        }
        return await self._patch(sharepod, [seen, *operations])

    async def reconcile(self, raw: Raw, sharepod: SharePod) -> RequeueAfter | None:
        """Bring a SharePod that was deleted one step towards its end.

        Args:
            raw: the SharePod, with our finalizer on it.
            sharepod: the same.

        Raises:
            ConflictError: SharePod or pod have changed meanwhile.
        """
        if finalizer.ORPHAN in sharepod.metadata.finalizers:
            await self._let_go(sharepod)
            return None
        pod = self._seen(sharepod)
        if pod is None or self._is_late(pod):
            pod = await self._live(sharepod)
        if pod is None or not await self._leaves(pod):
            await self._let_go(sharepod)
            return None
        return await self._write(raw, sharepod, pod)

    def _seen(self, sharepod: SharePod) -> Pod | None:
        pod = self._cluster_state.pod(sharepod.metadata.key)
        return pod if pod is not None and owned_by(pod, sharepod.metadata.uid) else None

    async def _live(self, sharepod: SharePod) -> Pod | None:
        metadata = sharepod.metadata
        try:
            pod = await self._client.get(PODS, metadata.name, metadata.namespace)
        except NotFoundError:
            return None
        return pod if owned_by(pod, metadata.uid) else None

    async def _leaves(self, pod: Pod) -> bool:
        """Delete its pod, unless it is going; False where there is none any more."""
        if pod.metadata.deletion_timestamp is not None:
            return True
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return False
        return True

    async def _let_go(self, sharepod: SharePod) -> None:
        await self._patch(sharepod, finalizer.remove(sharepod))

    async def _patch(self, sharepod: SharePod, operations: Sequence[Operation]) -> Raw | None:
        """The SharePod after a JSON patch; None when it is gone."""
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

    async def _write(self, raw: Raw, sharepod: SharePod, pod: Pod) -> RequeueAfter | None:
        """Say that its pod is being stopped, and where that takes too long, what may be wrong."""
        gpuids = sharepods.gpuids(sharepod)
        vgpus = [vgpu for vgpu in map(self._cluster_state.pool.get, gpuids) if vgpu is not None]
        late = _late(pod) if self._is_late(pod) else ""
        found = status.stopping(pod, vgpus, sharepod.status.gpus, late)
        written, again = await self._status_writer.write(sharepod, found, self._demand(raw))
        if written and late:
            self._events.not_stopping(sharepod, late)
        return earliest(again, None if late else RequeueAfter(self._left(pod)))

    def _demand(self, raw: Raw) -> Demand | None:
        try:
            return self._cluster_state.demands.of_sharepod(raw)
        except InvalidValueError:
            return None

    def _is_late(self, pod: Pod) -> bool:
        return self._left(pod) <= 0

    def _left(self, pod: Pod) -> float:
        """Seconds until it should have gone."""
        # Of a pod, this is the time at which its grace ends.
        ends = pod.metadata.deletion_timestamp
        now = self._wall_clock()
        since = datetime.fromisoformat(ends) if ends else now
        return (since + OVERDUE_AFTER - now).total_seconds()


def _late(pod: Pod) -> str:
    """Why a pod that should have gone may be there."""
    metadata = pod.metadata
    if metadata.finalizers:
        return f"its pod is kept by others' finalizers: {', '.join(metadata.finalizers)}"
    return (
        f"node {pod.spec.node_name} has not said that its containers have stopped: see whether "
        "the node is ready. Where it will not come back, delete the Node object, or say `kubectl "
        f"delete pod {metadata.name} -n {metadata.namespace} --force --grace-period=0`"
    )
