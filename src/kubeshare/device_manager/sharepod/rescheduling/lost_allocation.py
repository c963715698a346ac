"""A bound pod that has lost a part of a GPU before it began gives up, and begins again.

A leader that was paused may take back a part which it believes that nobody asks for, when
another one has told of it already and kube-scheduler has bound the pod. Such a pod is never
named to its node, for none runs with fewer GPUs than it asked for, and nothing else moves it
on: it is bound, and the part may be somebody else's by now. So when that has lasted for a
while, and live reads say that it is so and that nothing of the pod has ever started:

* the pod of a SharePod is deleted, in the very state in which it was read; when it has gone,
  the SharePod's decision is undone, as whenever neither part nor pod is there;
* a plain pod that has a controller is evicted, so that its controller makes another;
* one of its own is told what to do.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from kubeshare.api.eviction import evict
from kubeshare.api.pods import never_started
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SharePod
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.sharepod.pods import delete_as_seen
from kubeshare.device_manager.vgpu.health import Problem
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError, TooManyRequestsError
from kubeshare.kube.meta import Key

RESTART_SECONDS: Final = 30.0
"""Seconds that a part may be missing: watches that lag are long up to date by then."""
REPORT_SECONDS: Final = 5.0
"""Seconds after which that is told."""
EVICTION_RETRY_SECONDS: Final = 10.0
"""Seconds until an eviction that a disruption budget refused is asked for again."""


class _Short(Struct):
    """A pod that lacks a part: its uid, since when (loop time), and whether that is done with."""

    uid: str
    since: float
    words: str
    over: bool = False


class LostAllocations:
    """Has pods begin again that have lost a part before they began.

    Args:
        client: where pods are.
        cluster_state: the vGPUs and pods.
        events: tells people.
        metrics: counts.
    """

    def __init__(
        self, client: Client, cluster_state: ClusterState, events: Events, metrics: Metrics
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._events = events
        self._metrics = metrics
        self._short: dict[Key, _Short] = {}

    def forget(self, key: Key) -> None:
        """The pod is gone, or has what it asked for."""
        self._short.pop(key, None)

    def problem(self, pod: Pod) -> Problem | None:
        """What the status should say of a pod that lacks a part; None while that may pass."""
        short = self._short.get(pod.metadata.key)
        now = asyncio.get_running_loop().time()
        if short is None or short.uid != pod.metadata.uid or now < short.since + REPORT_SECONDS:
            return None
        return Reason.PART_TAKEN_BACK, short.words

    async def reconcile(
        self, pod: Pod, demand: str, gpuids: Sequence[str], sharepod: SharePod | None = None
    ) -> float | None:
        """Have a pod begin again, if it is time.

        Args:
            pod: of which parts were decided.
            demand: the uid of who asked for it.
            gpuids: the vGPUs of which it is to have parts.
            sharepod: whose pod it is; None for a plain one.

        Returns:
            seconds until to look again; None where there is nothing to wait for.

        Raises:
            ConflictError: the pod has changed meanwhile.
        """
        key, now = pod.metadata.key, asyncio.get_running_loop().time()
        known = self._short.get(key)
        if known is not None and known.uid == pod.metadata.uid and known.over:
            return None
        missing = [gpuid for gpuid in gpuids if not self._holds(gpuid, demand)]
        if not missing or not pod.spec.node_name or not never_started(pod):
            self.forget(key)
            return None
        if known is None or known.uid != pod.metadata.uid:
            known = _Short(pod.metadata.uid, now, _words(missing))
            self._short[key] = known
        for moment in (known.since + REPORT_SECONDS, known.since + RESTART_SECONDS):
            if now < moment:
                return moment - now
        live = await self._live(pod)
        if live is None or not [each for each in missing if await self._is_missing(each, demand)]:
            self.forget(key)
            return None
        return await self._begin_again(live, known, sharepod)

    def _holds(self, gpuid: str, demand: str) -> bool:
        vgpu = self._pool.get(gpuid)
        return vgpu is not None and holder_of(vgpu, demand) is not None

    async def _is_missing(self, gpuid: str, demand: str) -> bool:
        await self._pool.refresh(gpuid)
        return not self._holds(gpuid, demand)

    async def _live(self, pod: Pod) -> Pod | None:
        """That very pod as it is now, if it is bound and has not begun."""
        metadata = pod.metadata
        try:
            live = await self._client.get(PODS, metadata.name, metadata.namespace)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return None
        same = live.metadata.uid == metadata.uid
        return live if same and live.spec.node_name and never_started(live) else None

    async def _begin_again(
        self, pod: Pod, short: _Short, sharepod: SharePod | None
    ) -> float | None:
        """Let a pod go that will not run, or say what to do."""
        try:
            if sharepod is not None:
                await delete_as_seen(self._client, pod)
                self._events.allocation_lost(sharepod, short.words)
            elif pod.metadata.controller is None:
                self._events.pod_allocation_lost(
                    pod, f"{short.words}: delete it, and make it again"
                )
                short.over = True
                return None
            else:
                await evict(self._client, pod)
                self._events.pod_allocation_lost(
                    pod, f"{short.words}: it is evicted so that its controller makes another"
                )
        except TooManyRequestsError as error:
            self._events.eviction_refused(pod, f"{short.words}; {error.message}")
            return EVICTION_RETRY_SECONDS
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
        short.over = True
        self._metrics.moved.inc()
        return None


def _words(missing: Sequence[str]) -> str:
    return f"its part of vGPU {', '.join(missing)} was taken back before the pod began"
