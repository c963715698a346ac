"""Makes a kubelet retry a refused start at once.

A kubelet whose claim was refused retries when it next syncs the pod, after 60 to 90 seconds. The
node agent waits inside the call for a holder that is about to appear, so a refusal is rare: the
device manager or the token daemon was down for longer. Any change of the pod makes the kubelet
sync it at once, so this sets an annotation.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.constants import ANNOTATION_NUDGED, MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.conditions import timestamp
from kubeshare.kube.controller.pending import NotBefore
from kubeshare.kube.meta import Key

FIRST_RETRY_SECONDS: Final = 2.0
"""Seconds that a pod has to start before the first retry; doubles with each."""
MAX_RETRIES: Final = 7
"""How many retries one pod gets."""


class StartRetries:
    """Annotates pods that could start and do not.

    Args:
        client: writes the annotations.
        wall_clock: the time that the annotation gives.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._retries: dict[Key, tuple[str, int]] = {}  # pod -> uid, number of retries
        self._next_retry: NotBefore[Key] = NotBefore()

    def forget(self, key: Key) -> None:
        """Drop what is known about a pod: it is gone, or has started."""
        self._retries.pop(key, None)
        self._next_retry.forget(key)

    async def reconcile(self, pod: Pod, demand_uid: str, vgpus: Sequence[VGPU]) -> float | None:
        """Annotate a bound pod that shares these vGPUs, if a retry is due.

        Returns:
            seconds until to check again; None where no retry will be due.
        """
        key = pod.metadata.key
        if not vgpus or not _could_start(pod, demand_uid, vgpus):
            self.forget(key)
            return None
        uid, retries = self._retries.get(key, ("", 0))
        if uid != pod.metadata.uid:
            retries = 0
            self._retries[key] = (pod.metadata.uid, retries)
            self._next_retry.delay(key, FIRST_RETRY_SECONDS)
        if retries >= MAX_RETRIES:
            return None
        if not self._next_retry.remaining(key):
            await self._annotate(pod)
            retries += 1
            self._retries[key] = (pod.metadata.uid, retries)
            self._next_retry.delay(key, FIRST_RETRY_SECONDS * 2.0**retries)
        return self._next_retry.remaining(key)

    async def _annotate(self, pod: Pod) -> None:
        metadata = pod.metadata
        patch = {
            "metadata": {
                "uid": metadata.uid,
                "annotations": {ANNOTATION_NUDGED: timestamp(self._wall_clock())},
            }
        }
        try:
            await self._client.merge_patch(
                PODS, metadata.name, patch, metadata.namespace, field_manager=MANAGER_DEVICES
            )
        except (ConflictError, NotFoundError):
            return  # the pod has gone; another one may have its name


def _could_start(pod: Pod, demand_uid: str, vgpus: Sequence[VGPU]) -> bool:
    """Its node could prepare the pod and, as far as can be seen, has not."""
    started = pod.condition("PodReadyToStartContainers")
    held = [holder_of(vgpu, demand_uid) for vgpu in vgpus if vgpu.spec.uuid]
    return (
        bool(pod.spec.node_name)
        and pod.metadata.deletion_timestamp is None
        # A pod that has run before is started again after its node was.
        and (pod.status.phase == "Pending" if started is None else started.status == "False")
        and not pod.terminal
        and len(held) == len(vgpus)
        and all(holder is not None and holder.pod_uid == pod.metadata.uid for holder in held)
    )
