"""A pod whose start was refused, though all is there now: have its kubelet try again at once.

A kubelet that was refused a claim asks again when it next looks at the pod, after 60 to 90
seconds. The node agent waits inside the call for what is on its way, so a refusal is rare: a
device manager or a token daemon was away for longer. A change of the pod makes the kubelet
look at it at once; an annotation is a change that means nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.constants import ANNOTATION_NUDGED, MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.conditions import timestamp
from kubeshare.kube.meta import Key

FIRST_RETRY_SECONDS: Final = 10.0
"""Seconds that a pod gets to begin its start; doubles with each nudge."""
MAX_RETRIES: Final = 5
"""How many one pod gets."""


class _Slow(Struct):
    """A pod that does not begin: its uid, how often it was nudged, when it is next."""

    uid: str
    nudges: int
    due: float


class StartRetries:
    """Touches pods that have all they need and do not begin.

    Args:
        client: where pods are.
        wall_clock: the time that is noted.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._slow: dict[Key, _Slow] = {}

    def forget(self, key: Key) -> None:
        """The pod is gone."""
        self._slow.pop(key, None)

    async def reconcile(self, pod: Pod, demand: str, vgpus: Sequence[VGPU]) -> float | None:
        """Touch a pod, if it is time.

        Args:
            pod: bound.
            demand: the uid of who asked for it.
            vgpus: those that it shares.

        Returns:
            seconds until to look again; None where there is nothing to wait for.
        """
        key, now = pod.metadata.key, asyncio.get_running_loop().time()
        if not vgpus or not _could_begin(pod, demand, vgpus):
            self.forget(key)
            return None
        slow = self._slow.get(key)
        if slow is None or slow.uid != pod.metadata.uid:
            slow = self._slow[key] = _Slow(pod.metadata.uid, 0, now + FIRST_RETRY_SECONDS)
        if slow.nudges >= MAX_RETRIES:
            return None
        if now >= slow.due:
            await self._touch(pod)
            slow.nudges += 1
            slow.due = now + FIRST_RETRY_SECONDS * 2.0**slow.nudges
        return slow.due - now

    async def _touch(self, pod: Pod) -> None:
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
            return  # it is another pod by now


def _could_begin(pod: Pod, demand: str, vgpus: Sequence[VGPU]) -> bool:
    """Its node could prepare it, and has not, as far as can be seen."""
    begun = pod.condition("PodReadyToStartContainers")
    held = [holder_of(vgpu, demand) for vgpu in vgpus if vgpu.spec.uuid]
    return (
        bool(pod.spec.node_name)
        and pod.metadata.deletion_timestamp is None
        # One that has run before is started again after its node has been.
        and (pod.status.phase == "Pending" if begun is None else begun.status == "False")
        and not pod.terminal
        and len(held) == len(vgpus)
        and all(holder is not None and holder.pod_uid == pod.metadata.uid for holder in held)
    )
