"""Makes a kubelet retry a refused start at once.

A kubelet whose claim was refused retries when it next syncs the pod: after ten seconds, or after 60
to 90. The node agent waits inside the call for a holder that is about to appear, so a refusal is
rare: the API server did not yet let the kubelet read the claim, or the device manager or the token
daemon was down for longer. Any change of the pod makes the kubelet sync it at once, so this sets an
annotation.

The kubelet's event (:mod:`..refused_starts`) starts an urgent retry, and a timer starts one
wherever no event has come. Events can be forged, so a pod gets few urgent retries, with growing
pauses; each is a patch of an annotation of a pod that waits to start.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from kubeshare.api.holders import holder_of
from kubeshare.api.types.constants import ANNOTATION_NUDGED, MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.kube.controller.pending import loop_time
from kubeshare.kube.meta import Key

FIRST_RETRY_SECONDS: Final = 2.0
"""Seconds that a pod has to start before the first retry; doubles with each."""
MAX_RETRIES: Final = 7
"""How many retries one pod gets by the timer."""
URGENT_PAUSE_SECONDS: Final = 0.1
"""Seconds from the first retry upon an event to the second one; doubles with each."""
MAX_URGENT_RETRIES: Final = 5
"""How many retries one pod gets upon events."""


class _Retries(Struct):
    """The retries of one pod, and when the next ones are due (loop time).

    ``answered`` is the number of ``refusals`` that were known at the last urgent retry.
    """

    uid: str
    timed: int = 0
    timed_due: float | None = None
    urgent: int = 0
    urgent_due: float = 0.0
    refusals: int = 0
    answered: int = 0


class StartRetries:
    """Annotates pods that could start and do not.

    Args:
        client: writes the annotations.
        wall_clock: the time that the annotation gives.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._retries: dict[Key, _Retries] = {}

    def forget(self, key: Key) -> None:
        """Drop what is known about a pod: it is gone, or has started."""
        self._retries.pop(key, None)

    def report_refusal(self, pod: Pod) -> bool:
        """Note that a kubelet may have refused to start a pod.

        Returns:
            whether to reconcile the pod now.
        """
        if not _has_to_start(pod):
            return False
        retries = self._of(pod)
        if retries.urgent >= MAX_URGENT_RETRIES:
            return False
        retries.refusals += 1
        return True

    async def reconcile(self, pod: Pod, demand_uid: str, vgpus: Sequence[VGPU]) -> float | None:
        """Annotate a bound pod that shares these vGPUs, if a retry is due.

        Returns:
            seconds until to check again; None where no retry will be due.
        """
        if not _has_to_start(pod):
            self.forget(pod.metadata.key)
            return None
        retries = self._of(pod)
        if not _is_prepared_for(pod, demand_uid, vgpus):
            retries.timed, retries.timed_due = 0, None
            return None
        if retries.timed_due is None:
            retries.timed_due = loop_time() + FIRST_RETRY_SECONDS
        await self._retry(pod, retries)
        due = min(_urgent_due(retries), _timed_due(retries))
        return None if due == math.inf else max(0.0, due - loop_time())

    async def _retry(self, pod: Pod, retries: _Retries) -> None:
        now, refusals = loop_time(), retries.refusals
        urgent = _urgent_due(retries) <= now
        if not urgent and _timed_due(retries) > now:
            return
        await self._annotate(pod)
        if urgent:
            retries.urgent += 1
            retries.urgent_due = loop_time() + URGENT_PAUSE_SECONDS * 2.0 ** (retries.urgent - 1)
            retries.answered = refusals
        else:
            retries.timed += 1
            retries.timed_due = loop_time() + FIRST_RETRY_SECONDS * 2.0**retries.timed

    def _of(self, pod: Pod) -> _Retries:
        key, uid = pod.metadata.key, pod.metadata.uid
        retries = self._retries.get(key)
        if retries is None or retries.uid != uid:
            retries = self._retries[key] = _Retries(uid)
        return retries

    async def _annotate(self, pod: Pod) -> None:
        metadata = pod.metadata
        # With microseconds: a patch that changes nothing would be no news to the kubelet.
        patch = {
            "metadata": {
                "uid": metadata.uid,
                "annotations": {ANNOTATION_NUDGED: micro_timestamp(self._wall_clock())},
            }
        }
        try:
            await self._client.merge_patch(
                PODS, metadata.name, patch, metadata.namespace, field_manager=MANAGER_DEVICES
            )
        except (ConflictError, NotFoundError):
            return  # the pod has gone; another one may have its name


def _urgent_due(retries: _Retries) -> float:
    """When a retry upon an event is due; infinite if none is."""
    asked = retries.refusals > retries.answered and retries.urgent < MAX_URGENT_RETRIES
    return retries.urgent_due if asked else math.inf


def _timed_due(retries: _Retries) -> float:
    """When a retry by the timer is due; infinite if none is."""
    if retries.timed_due is None or retries.timed >= MAX_RETRIES:
        return math.inf
    return retries.timed_due


def _has_to_start(pod: Pod) -> bool:
    """Its node has not started it, as far as can be seen."""
    started = pod.condition("PodReadyToStartContainers")
    return (
        pod.metadata.deletion_timestamp is None
        # A pod that has run before is started again after its node was.
        and (pod.status.phase == "Pending" if started is None else started.status == "False")
        and not pod.terminal
    )


def _is_prepared_for(pod: Pod, demand_uid: str, vgpus: Sequence[VGPU]) -> bool:
    """Its node could start it: it is bound, and named in all its holders."""
    held = [holder_of(vgpu, demand_uid) for vgpu in vgpus if vgpu.spec.uuid]
    return (
        bool(vgpus)
        and bool(pod.spec.node_name)
        and len(held) == len(vgpus)
        and all(holder is not None and holder.pod_uid == pod.metadata.uid for holder in held)
    )
