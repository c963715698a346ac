"""Reconciles one SharePod whose GPUs and node are decided."""

from collections.abc import Sequence
from typing import Final

from kubeshare.api import finalizer, sharepods
from kubeshare.api.quotas.gpu_quotas import limits_changed
from kubeshare.api.quotas.resource_quotas import gpu_limits_changed
from kubeshare.api.state.stripping import is_stripped
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.constants import CONDITION_READY
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPU, SharePod
from kubeshare.api.upgrades import leader_changed
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.allocation import Allocations
from kubeshare.device_manager.sharepod.event_handlers import SharePodEventHandlers, with_assumed
from kubeshare.device_manager.sharepod.finalization import Finalizations
from kubeshare.device_manager.sharepod.pods import NameTakenError, Pods, owned_by
from kubeshare.device_manager.sharepod.prebound import PreboundPods
from kubeshare.device_manager.sharepod.rescheduling.checks import RescheduleChecks
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.start_retry import StartRetries
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.kube.client.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import Controller, RequeueAfter, earliest
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key, identity_of, metadata_of
from kubeshare.kube.resources import Raw

WORKERS: Final = 32
"""SharePods reconciled at the same time; a reconcile mostly waits for the API server, or for other
pods that are assigned with its own."""
UNSEEN_POD_SECONDS: Final = 60.0
"""Seconds until a created pod that no watch has reported is looked for again."""

_NO_WARNING: Final = frozenset({Reason.RELEASED, Reason.POD_SUCCEEDED, Reason.POD_NOT_READY})


class SharePodController:
    """Reconciles SharePods.

    Args:
        context: the state and the services that its steps use.
    """

    def __init__(self, context: Context) -> None:
        client, cluster_state, events = context.client, context.cluster_state, context.events
        self._client = client
        self._informers = context.informers
        self._schedulers = context.schedulers
        self._sharepod_store = context.informers.sharepods.store
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._events = events
        self._unschedulable: UnschedulableQueue[Key] = UnschedulableQueue()
        self._pods = Pods(client, cluster_state, context.metrics)
        self._prebound = PreboundPods(client, cluster_state, context.placeholders)
        lost_allocations = LostAllocations(client, cluster_state, events, context.metrics)
        self._allocations = Allocations(
            context,
            pods=self._pods,
            prebound=self._prebound,
            lost_allocations=lost_allocations,
            unschedulable=self._unschedulable,
        )
        self._reschedule_checks = RescheduleChecks(context, lost_allocations)
        self._start_retries = StartRetries(client, context.wall_clock)
        self._refused_starts = context.refused_starts
        self._status_writer = StatusWriter(client, context.wall_clock)
        self._finalizations = Finalizations(
            client, cluster_state, self._status_writer, events, context.wall_clock
        )

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        handlers = SharePodEventHandlers(
            self._sharepod_store, self._cluster_state, self._unschedulable, self._status_writer
        )
        controller: Controller[Key] = Controller("sharepods", self.reconcile, workers=WORKERS)
        controller.watch_changes(informers.sharepods, handlers.on_sharepod)
        controller.watch_changes(informers.vgpus, with_assumed(self._pool, handlers.on_vgpu))
        controller.watch_changes(informers.pods, handlers.on_pod)
        controller.watch(informers.gpunodes, handlers.all_unschedulable)
        controller.watch(
            informers.resourcequotas, handlers.all_unschedulable, when=gpu_limits_changed
        )
        controller.watch(informers.gpuquotas, handlers.all_unschedulable, when=limits_changed)
        controller.watch(informers.nodes, handlers.all_unschedulable)
        controller.watch(informers.configmaps, handlers.all_unschedulable)
        controller.watch(self._schedulers, handlers.all_unschedulable, when=leader_changed)
        self._refused_starts.feed(controller.queue, self._may_be_refused)
        program.add_controller(controller)
        add_resync(program, controller, self._sharepod_store.snapshot)

    def _may_be_refused(self, key: Key, pod_uid: str) -> bool:
        """Note what an event says of a pod; whether its SharePod is to be reconciled."""
        sharepod, pod = self._sharepod_store.by_key(key), self._cluster_state.pod(key)
        return (
            sharepod is not None
            and pod is not None
            and pod.metadata.uid == pod_uid
            and owned_by(pod, identity_of(sharepod).uid)
            and self._start_retries.report_refusal(pod)
        )

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile one SharePod."""
        self._unschedulable.discard(key)
        raw = self._sharepod_store.by_key(key)
        if raw is None:
            self._forget(key)
            return None
        sharepod = sharepods.view(raw)
        if sharepods.is_deleting(sharepod) and finalizer.is_present(sharepod):
            return await self._finalizations.reconcile(raw, sharepod)
        try:
            demand = self._cluster_state.demands.of_sharepod(raw)
        except InvalidValueError:
            return None  # Sched reports what is wrong with it
        if demand is not None and not sharepods.decided(sharepod):
            return await self._reconcile_undecided(sharepod, demand)
        return await self._reconcile_decided(raw, sharepod, demand)

    def _forget(self, key: Key) -> None:
        self._reschedule_checks.forget(key)
        self._allocations.forget(key)
        self._start_retries.forget(key)
        self._status_writer.forget(key)

    async def _reconcile_undecided(self, sharepod: SharePod, demand: Demand) -> RequeueAfter | None:
        """Correct the status of a SharePod whose last decision was cleared."""
        key = sharepod.metadata.key
        self._reschedule_checks.forget_decision(key)
        if not (sharepod.status.gpus or sharepod.status.node_name):
            return None
        report = status.rescheduling(sharepod.spec.gpu.set_aside)
        return earliest(await self._write(sharepod, report, demand), self._unseen(key))

    async def _reconcile_decided(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None
    ) -> RequeueAfter | None:
        pod = self._pod_of(sharepod)
        wait = await self._reschedule_checks.reconcile(raw, sharepod, demand, pod)
        if wait == 0:
            return None
        sharepod, found = await self._advance(raw, sharepod, demand)
        if pod is not None and wait is None:
            vgpus = self._allocations.vgpus(sharepod, sharepods.gpuids(sharepod))
            wait = await self._start_retries.reconcile(pod, sharepod.metadata.uid, vgpus)
        later = earliest(
            RequeueAfter(wait) if wait is not None else None, self._unseen(sharepod.metadata.key)
        )
        if found is None or isinstance(found, RequeueAfter):
            return earliest(found, later)
        return earliest(await self._write(sharepod, found, demand), later)

    def _unseen(self, key: Key) -> RequeueAfter | None:
        """When to look again for a pod that may have gone while the watch was disconnected."""
        return RequeueAfter(UNSEEN_POD_SECONDS) if self._cluster_state.is_unobserved(key) else None

    async def _advance(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None
    ) -> tuple[SharePod, Report | RequeueAfter | None]:
        """Take the next step.

        Returns:
            the SharePod as it is then, and what the status should say, None for no change.
        """
        gpuids = sharepods.gpuids(sharepod) if demand else ()
        pod = self._pod_of(sharepod)
        if pod is not None:
            return sharepod, await self._follow(raw, sharepod, pod, gpuids)
        if sharepods.is_deleting(sharepod) or sharepods.finished(sharepod):
            return sharepod, None
        if _refused_as_it_is(sharepod):
            for vgpu in self._allocations.vgpus(sharepod, gpuids):
                await self._pool.release(vgpu.metadata.name, sharepod.metadata.uid)
            return sharepod, None
        if demand is not None:
            ready, found = await self._allocations.reconcile(raw, sharepod, demand, gpuids)
            if not ready:
                return sharepod, found
        current = await self._finalizations.add_finalizer(raw, sharepod)
        if current is not None and is_stripped(current):
            current = await self._whole(sharepod)
        if current is None:
            return sharepod, None
        if current is not raw:
            sharepod = sharepods.view(current)  # a write of its status names the version
        vgpus = self._allocations.vgpus(sharepod, gpuids)
        return sharepod, await self._create_pod(current, sharepod, demand, vgpus)

    async def _follow(
        self, raw: Raw, sharepod: SharePod, pod: Pod, gpuids: Sequence[str]
    ) -> Report:
        """Record a bound pod in its holders; returns what the status should say."""
        if _was_ended(raw, pod) and not sharepods.finished(sharepod):
            message = "its pod was deleted or evicted: another one is created when it has gone"
            return status.not_allocated(Reason.RELEASING, message, passing=True)
        uid = sharepod.metadata.uid
        # A pod that was created for a former decision does not get the present one's holders.
        current = pod.spec.node_name == sharepod.spec.node_name or not gpuids
        if pod.spec.node_name and current and not pod.terminal:
            await self._pods.assign_holders(pod, uid, gpuids)
        vgpus = self._allocations.vgpus(sharepod, gpuids)
        blocked = await self._prebound.reconcile(pod, uid, vgpus)
        if blocked is not None:
            return status.blocked(blocked)
        problem = self._allocations.problem(vgpus, pod)
        return status.of_pod(pod, vgpus, problem, sharepod.status.gpus)

    async def _create_pod(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None, vgpus: Sequence[VGPU]
    ) -> Report | None:
        known = vgpus if all(vgpu.spec.uuid for vgpu in vgpus) else ()
        try:
            pod = await self._pods.create(raw, vgpus, demand.shares if demand else ())
        except NameTakenError as taken:
            return status.without_pod(known, Reason.NAME_TAKEN, str(taken), passing=taken.leaving)
        except InvalidError as error:
            # The shares are released once the status says so.
            return status.refused(error.message, shares=bool(vgpus))
        except ForbiddenError as error:
            refused = status.without_pod(known, Reason.POD_FORBIDDEN, error.message)
            await self._status_writer.write(sharepod, refused, demand)
            raise
        if pod is None:
            return None
        return await self._follow(raw, sharepod, pod, [vgpu.gpuid for vgpu in vgpus])

    async def _whole(self, sharepod: SharePod) -> Raw | None:
        """The SharePod as the API server has it; None when it no longer exists.

        Raises:
            ConflictError: it has changed since it was cached.
        """
        metadata = sharepod.metadata
        try:
            raw = await self._client.get(SHAREPODS, metadata.name, metadata.namespace)
        except NotFoundError:
            return None
        live = metadata_of(raw)
        if (live.uid, live.generation) != (metadata.uid, metadata.generation):
            raise ConflictError(f"SharePod {metadata.key} has changed since it was read")
        return raw

    def _pod_of(self, sharepod: SharePod) -> Pod | None:
        pod = self._cluster_state.pod(sharepod.metadata.key)
        return pod if pod is not None and owned_by(pod, sharepod.metadata.uid) else None

    async def _write(
        self, sharepod: SharePod, report: Report, demand: Demand | None
    ) -> RequeueAfter | None:
        """Write the status; record its warnings as events when they are new and not passing."""
        written, again = await self._status_writer.write(sharepod, report, demand)
        if written and not report.passing:
            for condition in report.conditions:
                if condition.status == "False" and condition.reason not in _NO_WARNING:
                    self._events.not_allocated(sharepod, condition.reason, condition.message)
        return again


def _refused_as_it_is(sharepod: SharePod) -> bool:
    """The API server has refused its pod as invalid, and its spec has not changed since."""
    ready = find_condition(sharepod.status.conditions, CONDITION_READY)
    return (
        ready is not None
        and ready.reason == Reason.INVALID_POD
        and ready.observed_generation == sharepod.metadata.generation
    )


def _was_ended(raw: Raw, pod: Pod) -> bool:
    """The pod has ended because it was deleted or evicted, not by itself.

    The kubelet reports such a pod as failed, or succeeded where its containers exit with 0.
    """
    if pod.metadata.deletion_timestamp is None or not pod.terminal:
        return False
    always = (raw["spec"].get("restartPolicy") or "Always") == "Always"
    return always or pod.status.phase == "Failed"
