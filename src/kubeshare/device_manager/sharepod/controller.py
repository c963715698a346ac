"""The steps of one SharePod's life after its GPU and node are known, in order."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kubeshare.api import finalizer, sharepods
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.constants import CONDITION_READY
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, SharePod
from kubeshare.api.vgpu_readiness import blocker
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.finalization import Finalizations
from kubeshare.device_manager.sharepod.pods import NameTakenError, Pods, owned_by
from kubeshare.device_manager.sharepod.prebound import PreboundPods
from kubeshare.device_manager.sharepod.rescheduling.gpu_contention import ContendedGpus
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.rescheduling.undo import undo_decision
from kubeshare.device_manager.sharepod.rescheduling.unschedulable import UnschedulablePods
from kubeshare.device_manager.sharepod.reservation import Reservations
from kubeshare.device_manager.sharepod.start_retry import StartRetries
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.device_manager.vgpu.health import Problem, problem_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ForbiddenError, InvalidError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

WATCH_LAG_SECONDS: Final = 1.0
"""Seconds that one watch may be behind another before the API server is asked."""
UNSEEN_POD_SECONDS: Final = 60.0
"""Seconds until a pod that was made, and that no watch has told of, is looked for again."""


class SharePodController:
    """Brings a SharePod one step on.

    Args:
        client: where SharePods are.
        sharepod_store: the SharePods.
        cluster_state: the cluster's GPUs and pods.
        waiting: where those are noted for which a GPU given by name has no room.
        reserve: takes GPUs given by name.
        pods: makes pods.
        prebound: takes those back whose GPU does not come.
        placeholders: tells why a GPU is not there yet.
        unschedulable_pods: moves pods for which kube-scheduler finds no room.
        contended_gpus: moves SharePods whose GPU somebody else has got.
        lost_allocations: has pods begin again that have lost a part before they began.
        start_retries: has kubelets try again at once.
        status_writer: writes the status.
        finalizations: has SharePods go after their pods.
        events: tells people.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        *,
        client: Client,
        sharepod_store: Store[Raw],
        cluster_state: ClusterState,
        waiting: UnschedulableQueue[Key],
        reservations: Reservations,
        pods: Pods,
        prebound: PreboundPods,
        placeholders: Placeholders,
        unschedulable_pods: UnschedulablePods,
        contended_gpus: ContendedGpus,
        lost_allocations: LostAllocations,
        start_retries: StartRetries,
        status_writer: StatusWriter,
        finalizations: Finalizations,
        events: Events,
    ) -> None:
        self._client = client
        self._sharepod_store = sharepod_store
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._waiting = waiting
        self._reservations = reservations
        self._pods = pods
        self._prebound = prebound
        self._placeholders = placeholders
        self._unschedulable_pods = unschedulable_pods
        self._contended_gpus = contended_gpus
        self._lost_allocations = lost_allocations
        self._start_retries = start_retries
        self._status_writer = status_writer
        self._finalizations = finalizations
        self._events = events
        self._unseen_since: dict[Key, float] = {}  # SharePod without its part -> loop time

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one SharePod."""
        self._waiting.discard(key)
        raw = self._sharepod_store.by_key(key)
        if raw is None:
            self._unschedulable_pods.forget(key)
            self._contended_gpus.forget(key)
            self._lost_allocations.forget(key)
            self._start_retries.forget(key)
            self._status_writer.forget(key)
            self._unseen_since.pop(key, None)
            return None
        sharepod = sharepods.view(raw)
        if sharepods.is_deleting(sharepod) and finalizer.is_present(sharepod):
            return await self._finalizations.reconcile(raw, sharepod)
        try:
            demand = self._cluster_state.demands.of_sharepod(raw)
        except InvalidValueError:
            return None  # Sched tells what is wrong with it
        return await self._live_on(raw, sharepod, demand)

    async def _live_on(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None
    ) -> RequeueAfter | None:
        key = sharepod.metadata.key
        patience: float | None = None
        if demand is not None and not sharepods.decided(sharepod):
            self._unschedulable_pods.forget(key)
            self._contended_gpus.forget(key)
            if not (sharepod.status.gpus or sharepod.status.node_name):
                return None
            # What the status tells was so before Sched's last decision was undone.
            found: Report | RequeueAfter | None = status.rescheduling(sharepod.spec.gpu.set_aside)
        else:
            pod = self._pod_of(sharepod)
            patience = await self._patience(raw, sharepod, demand, pod)
            if patience == 0:
                return None
            found = await self._advance(raw, sharepod, demand)
            if pod is not None and patience is None:
                vgpus = self._vgpus(sharepods.gpuids(sharepod))
                patience = await self._start_retries.reconcile(pod, sharepod.metadata.uid, vgpus)
        later = earliest(RequeueAfter(patience) if patience else None, self._unseen(key))
        if found is None or isinstance(found, RequeueAfter):
            return earliest(found, later)
        written, again = await self._status_writer.write(sharepod, found, demand)
        if written and not found.passing:
            self._warn(sharepod, found)
        return earliest(again, later)

    def _unseen(self, key: Key) -> RequeueAfter | None:
        """When to look again for a pod that may have come and gone while the watch was broken."""
        return RequeueAfter(UNSEEN_POD_SECONDS) if self._cluster_state.is_unobserved(key) else None

    async def _patience(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None, pod: Pod | None
    ) -> float | None:
        """Seconds that what may be wrong with it has left to pass; 0 when it has moved on."""
        patience = await self._unschedulable_pods.reconcile(raw, sharepod, pod)
        if patience is not None:
            return patience
        if pod is None:
            return await self._contended_gpus.reconcile(raw, sharepod, demand)
        gpuids = sharepods.gpuids(sharepod) if demand else ()
        return await self._lost_allocations.reconcile(pod, sharepod.metadata.uid, gpuids, sharepod)

    async def _advance(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None
    ) -> Report | RequeueAfter | None:
        """Do the next step; what the status should say, or None where it says enough."""
        gpuids = sharepods.gpuids(sharepod) if demand else ()
        pod = self._pod_of(sharepod)
        if pod is not None:
            return await self._follow(raw, sharepod, pod, gpuids)
        if sharepods.is_deleting(sharepod) or sharepods.finished(sharepod):
            return None
        if _refused_as_it_is(sharepod):
            for gpuid in gpuids:
                await self._pool.release(gpuid, sharepod.metadata.uid)
            return None
        if demand is not None:
            not_ready = await self._not_ready(raw, sharepod, demand, gpuids)
            if not_ready is not None:
                return not_ready
            if self._unheld(sharepod, gpuids):
                return None  # it has been undone
        return await self._make_pod(raw, sharepod, demand, self._vgpus(gpuids))

    async def _follow(
        self, raw: Raw, sharepod: SharePod, pod: Pod, gpuids: Sequence[str]
    ) -> Report:
        """Bring its pod on its way, and tell how it is."""
        if _was_ended(raw, pod) and not sharepods.finished(sharepod):
            words = "its pod was deleted or evicted, and is going: another one is made"
            return status.not_allocated(Reason.RELEASING, words, passing=True)
        uid = sharepod.metadata.uid
        # One that was made for a former decision is not given what this one has.
        here = pod.spec.node_name == sharepod.spec.node_name or not gpuids
        if pod.spec.node_name and here and not pod.terminal:
            await self._pods.assign_holders(pod, uid, gpuids)
        vgpus, reported = self._vgpus(gpuids), sharepod.status.gpus
        blocked = await self._prebound.reconcile(pod, uid, vgpus)
        if blocked is not None:
            return status.not_allocated(blocked.reason, blocked.message, passing=blocked.transient)
        return status.of_pod(pod, vgpus, self._problem(gpuids, pod), reported)

    async def _not_ready(
        self, raw: Raw, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> Report | RequeueAfter | None:
        """What keeps its pod from being made, after trying to get it out of the way."""
        unheld = self._unheld(sharepod, gpuids)
        if unheld and sharepod.spec.gpu.attempt:
            lag = self._lag(sharepod)
            if lag is None:
                await self._undo_if_gone(raw, sharepod, gpuids, unheld[0])
            return lag
        refusal = await self._reservations.reserve(sharepod, demand, gpuids) if unheld else None
        if refusal is not None:
            metadata = sharepod.metadata
            self._waiting.add(metadata.key, metadata.creation_timestamp or "")
            return refusal
        self._unseen_since.pop(sharepod.metadata.key, None)
        for vgpu in self._vgpus(gpuids):
            holder = holder_of(vgpu, sharepod.metadata.uid)
            if holder is not None and holder.pod_uid:
                words = f"the node has not released its former pod from vGPU {vgpu.metadata.name}"
                return status.not_allocated(Reason.RELEASING, words, passing=True)
            blocked = blocker(vgpu, self._placeholders.of(vgpu.metadata.name))
            if blocked is not None and not self._prebound.is_gpu_assured(vgpu):
                return status.not_allocated(
                    blocked.reason, blocked.message, passing=blocked.transient
                )
        problem = self._problem(gpuids)
        return status.not_allocated(*problem) if problem else None

    def _lag(self, sharepod: SharePod) -> RequeueAfter | None:
        """What is left of the time that the watch gets to tell of a part which Sched has taken."""
        key, now = sharepod.metadata.key, asyncio.get_running_loop().time()
        left = self._unseen_since.setdefault(key, now) + WATCH_LAG_SECONDS - now
        if left > 0:
            return RequeueAfter(left)
        del self._unseen_since[key]
        return None

    async def _undo_if_gone(
        self, raw: Raw, sharepod: SharePod, gpuids: Sequence[str], not_ready: str
    ) -> None:
        """Undo Sched's decision, once live reads say that neither its part nor a pod is there."""
        vgpu = await self._pool.refresh(not_ready)
        if vgpu is not None and holder_of(vgpu, sharepod.metadata.uid):
            return
        if await self._pods.exists(sharepod.metadata.key):
            return
        for gpuid in gpuids:
            await self._pool.release(gpuid, sharepod.metadata.uid)
        await undo_decision(self._client, raw)
        self._events.undone(sharepod, not_ready)

    async def _make_pod(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None, vgpus: Sequence[VGPU]
    ) -> Report | None:
        known = vgpus if all(vgpu.spec.uuid for vgpu in vgpus) else ()
        kept = await self._finalizations.add_finalizer(raw, sharepod)
        if kept is None:
            return None
        try:
            pod = await self._pods.create(kept, vgpus)
        except NameTakenError as taken:
            return status.without_pod(known, Reason.NAME_TAKEN, str(taken), passing=taken.leaving)
        except InvalidError as error:
            return status.without_pod(known, Reason.INVALID_POD, error.message)
        except ForbiddenError as error:
            refused = status.without_pod(known, Reason.POD_FORBIDDEN, error.message)
            await self._status_writer.write(sharepod, refused, demand)
            raise
        if pod is None:
            return None
        return await self._follow(raw, sharepod, pod, [vgpu.metadata.name for vgpu in vgpus])

    def _pod_of(self, sharepod: SharePod) -> Pod | None:
        pod = self._cluster_state.pod(sharepod.metadata.key)
        return pod if pod is not None and owned_by(pod, sharepod.metadata.uid) else None

    def _vgpus(self, gpuids: Sequence[str]) -> list[VGPU]:
        found = (self._pool.get(gpuid) for gpuid in gpuids)
        return [vgpu for vgpu in found if vgpu is not None]

    def _unheld(self, sharepod: SharePod, gpuids: Sequence[str]) -> list[str]:
        held = {
            vgpu.metadata.name
            for vgpu in self._vgpus(gpuids)
            if holder_of(vgpu, sharepod.metadata.uid)
        }
        return [gpuid for gpuid in gpuids if gpuid not in held]

    def _problem(self, gpuids: Sequence[str], pod: Pod | None = None) -> Problem | None:
        """What is wrong with its GPUs; some things are so for a pod that was there before."""
        if pod is not None and (short := self._lost_allocations.problem(pod)):
            return short
        for vgpu in self._vgpus(gpuids):
            reported = problem_of(vgpu)
            if reported is not None:
                return reported
            if pod is not None and self._ran_before(pod, vgpu):
                return Reason.GPU_LOST, (
                    f"the GPU of vGPU {vgpu.metadata.name} was lost for a while, and this pod may "
                    "not use it any more: delete the pod to have it started again"
                )
        return None

    def _ran_before(self, pod: Pod, vgpu: VGPU) -> bool:
        """A container of it has run since before the placeholder that its GPU has now.

        By the node's clock, which may be behind. By the API server's alone, the pod itself was
        made before.
        """
        times = (pod.metadata.creation_timestamp or "", pod.running_since)
        placeholder = self._placeholders.of(vgpu.metadata.name) if all(times) else None
        now = placeholder.metadata.creation_timestamp or "" if placeholder else ""
        return all("" < time < now for time in times)

    def _warn(self, sharepod: SharePod, found: Report) -> None:
        for condition in found.conditions:
            if condition.status == "False" and condition.reason not in _NO_WARNING:
                self._events.waits(sharepod, condition.reason, condition.message)


_NO_WARNING = frozenset({Reason.RELEASED, Reason.POD_SUCCEEDED, Reason.POD_NOT_READY})


def _refused_as_it_is(sharepod: SharePod) -> bool:
    """The API server has refused its pod, and it has not been changed since."""
    ready = find_condition(sharepod.status.conditions, CONDITION_READY)
    return (
        ready is not None
        and ready.reason == Reason.INVALID_POD
        and ready.observed_generation == sharepod.metadata.generation
    )


def _was_ended(raw: Raw, pod: Pod) -> bool:
    """Somebody has had its pod end, by an eviction say: it has not ended by itself.

    The kubelet says of such a pod that it has failed, or succeeded if its containers are polite.
    """
    if pod.metadata.deletion_timestamp is None or not pod.terminal:
        return False
    always = (raw["spec"].get("restartPolicy") or "Always") == "Always"
    return always or pod.status.phase == "Failed"
