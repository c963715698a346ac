"""Reconciles one plain pod whose scheduling gate has been removed.

The uid of a plain pod is the uid of its demand, so the holders alone say whether it shares a GPU,
and no pod can forge that. When kube-scheduler has bound it, its uid is written into its holders,
and the node gives it the GPUs. A bound pod that lost an allocation before starting is restarted
(:mod:`..sharepod.rescheduling.lost_allocation`). Where a scheduler extender reserved the shares and
kube-scheduler bound the pod, its GPUs are named first (:mod:`.naming`).

If kube-scheduler finds the pod unschedulable, the decision cannot be undone: a scheduling gate
cannot be added again. A pod with a controller is deleted, in exactly the state that was seen; its
controller creates another one, and Sched decides anew. Each time that this happens to the same
controller, its next pod gets more time. A bare pod keeps its share and stays pending, and an event
says what to do.
"""

from typing import Final

from msgspec import Struct

from kubeshare.api.pod_state import (
    has_shares,
    is_bound_with_cores,
    is_plain,
    never_started,
    unschedulable,
)
from kubeshare.api.types.constants import VGPU_RESOURCES
from kubeshare.api.types.core_v1 import Pod
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.pod.event_handlers import PodEventHandlers, asks_for_count_alone
from kubeshare.device_manager.pod.family_annotations import update_annotations
from kubeshare.device_manager.pod.naming import PodNaming
from kubeshare.device_manager.sharepod.event_handlers import with_assumed
from kubeshare.device_manager.sharepod.pods import Pods, delete_as_seen, unschedulable_message
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.start_retry import StartRetries
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.pending import PendingSince, loop_time
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

WORKERS: Final = 8
"""Pods reconciled at the same time; a reconcile mostly waits for the API server."""
FIRST_WAIT_SECONDS: Final = 10.0
"""Seconds that a controller's first pod may be unschedulable; doubles with each deleted pod."""
MAX_WAIT_SECONDS: Final = 600.0
FORGET_AFTER_SECONDS: Final = 3600.0
"""Seconds after which the deleted pods of a controller no longer count."""
MAX_CONTROLLERS: Final = 1024
"""Controllers whose deleted pods are counted; the oldest entry is dropped first."""


_PLAIN: Final = "is a plain pod that asks for shares"
"""The index of the pods that are reconciled again from time to time."""


class PodController:
    """Reconciles plain pods that share GPUs.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._informers = context.informers
        self._client = context.client
        self._cluster_state = context.cluster_state
        self._pool = context.pool
        self._events = context.events
        self._metrics = context.metrics
        self._pods = Pods(context.client, context.cluster_state, context.metrics)
        self._lost_allocations = LostAllocations(
            context.client, context.cluster_state, context.events, context.metrics
        )
        self._naming = PodNaming(context, self._lost_allocations)
        self._start_retries = StartRetries(context.client, context.wall_clock)
        self._refused_starts = context.refused_starts
        self._unschedulable: PendingSince[Key] = PendingSince()
        self._deleted: dict[str, _DeletedPods] = {}  # by the uid of the controller

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        handlers = PodEventHandlers(self._cluster_state)
        controller: Controller[Key] = Controller("pods", self.reconcile, workers=WORKERS)
        controller.watch_changes(self._informers.pods, handlers.on_pod)
        controller.watch_changes(self._informers.vgpus, with_assumed(self._pool, handlers.on_vgpu))
        self._refused_starts.feed(controller.queue, self._may_be_refused)
        program.add_controller(controller)
        pods = self._informers.pods.store
        pods.add_index(_PLAIN, lambda pod: [_PLAIN] if is_plain(pod) else [])
        add_resync(program, controller, lambda: pods.keys_by_index(_PLAIN, _PLAIN))

    def _may_be_refused(self, key: Key, pod_uid: str) -> bool:
        """Note what an event says of a pod; whether it is to be reconciled."""
        if not self._pool.held_by(pod_uid):  # a SharePod's pod is not its demand
            return False
        pod = self._cluster_state.pod(key)
        return (
            pod is not None
            and pod.metadata.uid == pod_uid
            and self._start_retries.report_refusal(pod)
        )

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile one pod."""
        pod = self._cluster_state.pod(key)
        if pod is not None and is_bound_with_cores(pod) and never_started(pod):
            named = await self._naming.name(pod)
            if not isinstance(named, Pod):
                return named
            pod = named
        held = self._pool.held_by(pod.metadata.uid) if pod is not None else []
        if pod is not None and has_shares(pod) and not pod.gated:
            await update_annotations(self._client, pod)
        if pod is not None and not held and asks_for_count_alone(pod):
            self._events.gpu_count_alone(pod)
        if pod is None or pod.terminal or not _is_decided(pod) or not (held or has_shares(pod)):
            self._unschedulable.forget(key)
            self._lost_allocations.forget(key)
            self._start_retries.forget(key)
            return None
        if pod.spec.node_name:
            self._unschedulable.forget(key)
            here = {vgpu.gpuid for vgpu in held if vgpu.spec.node_name == pod.spec.node_name}
            if here.issuperset(pod.gpuids):
                await self._pods.assign_holders(pod, pod.metadata.uid, pod.gpuids)
            again = await self._lost_allocations.reconcile(pod, pod.metadata.uid, pod.gpuids)
            if again is None and _is_prepared_by_claim(pod):
                again = await self._start_retries.reconcile(
                    pod, pod.metadata.uid, self._pool.held_by(pod.metadata.uid)
                )
            return RequeueAfter(again) if again is not None else None
        if not unschedulable(pod):
            self._unschedulable.forget(key)
            return None
        return await self._reconcile_unschedulable(key, pod)

    async def _reconcile_unschedulable(self, key: Key, pod: Pod) -> RequeueAfter | None:
        controller = pod.metadata.controller
        times = self._times_deleted(controller.uid) if controller else 0
        seconds = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(times, 16))
        if left := self._unschedulable.remaining(key, seconds, pod.metadata.uid):
            return RequeueAfter(left)
        message = unschedulable_message(pod)
        if controller is None:
            self._events.pod_unschedulable(pod, message)
            return None
        self._events.pod_deleted_unschedulable(pod, message)
        await self._delete(pod)
        self._count(controller.uid, times + 1)
        return None

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod in exactly the state that was seen, so not if it was bound since."""
        try:
            await delete_as_seen(self._client, pod)
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return
        self._metrics.moved.inc()

    def _times_deleted(self, controller: str) -> int:
        known = self._deleted.get(controller)
        fresh = known is not None and known.last + FORGET_AFTER_SECONDS > loop_time()
        return known.times if known is not None and fresh else 0

    def _count(self, controller: str, times: int) -> None:
        self._deleted.pop(controller, None)
        self._deleted[controller] = _DeletedPods(times, loop_time())
        if len(self._deleted) > MAX_CONTROLLERS:
            del self._deleted[next(iter(self._deleted))]


def _is_decided(pod: Pod) -> bool:
    """Whether the pod names its GPUs: Sched removes the gate then, an extender binds it then."""
    return not pod.gated and bool(pod.spec.node_name or pod.gpuids)


def _is_prepared_by_claim(pod: Pod) -> bool:
    """Whether it asks for shares by a claim, as all do but those that another system placed."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(name in each.resources.limits for each in containers for name in VGPU_RESOURCES)


class _DeletedPods(Struct, frozen=True):
    """How many pods of a controller were deleted, and when the last one was (loop time)."""

    times: int
    last: float
