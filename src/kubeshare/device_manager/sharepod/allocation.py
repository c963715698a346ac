"""Checks that the GPUs of a SharePod are reserved and ready."""

from collections.abc import Iterable, Sequence
from typing import Final

from kubeshare.api.holder_codec import are_understood
from kubeshare.api.holders import holder_of
from kubeshare.api.owned_nodes import keeps_off
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, SharePod
from kubeshare.api.upgrades import is_new_form, outdated_agent, outdated_scheduler
from kubeshare.api.vgpu_readiness import blocker
from kubeshare.core.demand import Demand
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.pods import Pods
from kubeshare.device_manager.sharepod.prebound import PreboundPods
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.rescheduling.reschedule import clear_decision
from kubeshare.device_manager.sharepod.reservation import Reservations
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.device_manager.vgpu.health import Problem, problem_of
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

WATCH_LAG_SECONDS: Final = 1.0
"""Seconds that one watch may be behind another before a live read decides."""


class Allocations:
    """Reserves the GPUs of SharePods, and finds what is wrong with them.

    Args:
        context: the state and the services that it uses.
        pods: for live reads of pods.
        prebound: which vGPUs need not be ready yet.
        lost_allocations: which pods lack a holder.
        unschedulable: gets the SharePods whose given GPU has no room.
    """

    def __init__(
        self,
        context: Context,
        *,
        pods: Pods,
        prebound: PreboundPods,
        lost_allocations: LostAllocations,
        unschedulable: UnschedulableQueue[Key],
    ) -> None:
        self._client = context.client
        self._pool = context.pool
        self._placeholders = context.placeholders
        self._events = context.events
        self._nodes = context.informers.nodes.store
        self._gpunodes = context.informers.gpunodes.store
        self._leases = context.schedulers.store
        self._configuration = context.configuration
        self._reservations = Reservations(
            context.cluster_state, context.on_given_gpu, self._refusal
        )
        self._pods = pods
        self._prebound = prebound
        self._lost_allocations = lost_allocations
        self._unschedulable = unschedulable
        self._unheld: PendingSince[Key] = PendingSince()  # SharePods whose holders are not seen

    def forget(self, key: Key) -> None:
        """Drop the timer of a SharePod: it is gone, or has its holders."""
        self._unheld.forget(key)

    def vgpus(self, sharepod: SharePod, gpuids: Sequence[str]) -> list[VGPU]:
        """The vGPUs of these GPUIDs on the SharePod's node that exist."""
        return self._pool.named(sharepod.spec.node_name, gpuids, sharepod.metadata.uid)

    async def reconcile(
        self, raw: Raw, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> tuple[bool, Report | RequeueAfter | None]:
        """Reserve the GPUs that the author has chosen, and check those that Sched has chosen.

        Returns:
            whether the pod may be created; if not, what the status should say or when to
            reconcile again: neither when the decision has been cleared.

        Raises:
            StaleDecisionError: the vGPUs have changed in between.
            ConflictError: the SharePod has changed in between.
        """
        key = sharepod.metadata.key
        if why := outdated_scheduler(demand, self._leases):
            self._unschedulable.add(key, sharepod.metadata.creation_timestamp or "")
            return False, status.not_allocated(Reason.UPGRADE_IN_PROGRESS, why)
        missing = self._missing_holders(sharepod, demand, gpuids)
        if missing and sharepod.spec.gpu.attempt:
            if left := self._unheld.remaining(key, WATCH_LAG_SECONDS, sharepod.metadata.uid):
                return False, RequeueAfter(left)
            self.forget(key)
            await self._clear_if_lost(raw, sharepod, demand, gpuids)
            if self._missing_holders(sharepod, demand, gpuids):
                return False, None
        elif missing:
            refusal = self._outdated(sharepod.spec.node_name, demand)
            refusal = refusal or await self._reservations.reserve(sharepod, demand, gpuids)
            if refusal is not None:
                self._unschedulable.add(key, sharepod.metadata.creation_timestamp or "")
                return False, refusal
        self.forget(key)
        not_ready = self._not_ready(sharepod, gpuids)
        return not_ready is None, not_ready

    def problem(self, vgpus: Iterable[VGPU], pod: Pod | None = None) -> Problem | None:
        """What is wrong with the GPUs; for a pod, also what is wrong for this pod only."""
        if pod is not None and (lost := self._lost_allocations.problem(pod)):
            return lost
        for vgpu in vgpus:
            degraded = problem_of(vgpu)
            if degraded is not None:
                return degraded
            if pod is not None and self._ran_before(pod, vgpu):
                return Reason.GPU_LOST, (
                    f"the GPU of vGPU {vgpu.gpuid} was lost for a while, and this pod may "
                    "not use it any more: delete the pod to have it started again"
                )
        return None

    def _refusal(self, node: str) -> str:
        """Why SharePods may not use a node; ``""`` if they may."""
        found = self._nodes.get(node)
        return keeps_off(found, "", self._configuration.now().owned) if found else ""

    def _outdated(self, node: str, demand: Demand) -> Report | None:
        """Why the agent of a node that the author has chosen cannot attach a demand yet."""
        why = outdated_agent(self._gpunodes.by_key(Key("", node))) if is_new_form(demand) else ""
        message = f"node {node}: {why}"
        return status.not_allocated(Reason.UPGRADE_IN_PROGRESS, message) if why else None

    def _not_ready(self, sharepod: SharePod, gpuids: Sequence[str]) -> Report | None:
        """Why the pod cannot be created yet although its GPUs are reserved."""
        vgpus = self.vgpus(sharepod, gpuids)
        for vgpu in vgpus:
            holder = holder_of(vgpu, sharepod.metadata.uid)
            if holder is not None and holder.pod_uid:
                message = f"the node has not released its former pod from vGPU {vgpu.gpuid}"
                return status.not_allocated(Reason.RELEASING, message, passing=True)
            blocked = blocker(vgpu, self._placeholders.of(vgpu.metadata.name))
            if blocked is not None and not self._prebound.is_gpu_assured(vgpu):
                return status.blocked(blocked)
        problem = self.problem(vgpus)
        return status.not_allocated(*problem) if problem else None

    async def _clear_if_lost(
        self, raw: Raw, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> None:
        """Clear Sched's decision once live reads find neither all holders nor a pod."""
        uid, node = sharepod.metadata.uid, sharepod.spec.node_name
        for gpuid in self._missing_holders(sharepod, demand, gpuids):
            await self._pool.refresh_identity(node, gpuid, uid)
        missing = self._missing_holders(sharepod, demand, gpuids)
        if not missing or await self._pods.exists(sharepod.metadata.key):
            return
        for vgpu in self.vgpus(sharepod, gpuids):
            await self._pool.release(vgpu.metadata.name, uid)
        await clear_decision(self._client, raw)
        self._events.rescheduled(sharepod, missing[0])

    def _missing_holders(
        self, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> list[str]:
        """The GPUIDs of which the SharePod does not hold what it asks for."""
        vgpus = self.vgpus(sharepod, gpuids)
        held = {
            vgpu.gpuid: holder
            for vgpu in vgpus
            if (holder := holder_of(vgpu, sharepod.metadata.uid))
        }
        missing = [gpuid for gpuid in gpuids if gpuid not in held]
        if missing or not is_new_form(demand) or are_understood(vgpus, demand):
            return missing
        # A scheduler of an earlier version stores what it understands of a demand.
        return [gpuid for gpuid in gpuids if not held[gpuid].pod_uid]

    def _ran_before(self, pod: Pod, vgpu: VGPU) -> bool:
        """Whether a container has run since before the GPU got its present placeholder.

        The start time of the container is by the node's clock, which may be behind. By the API
        server's clock alone, the pod itself was created before.
        """
        times = (pod.metadata.creation_timestamp or "", pod.running_since)
        placeholder = self._placeholders.of(vgpu.metadata.name) if all(times) else None
        created = placeholder.metadata.creation_timestamp or "" if placeholder else ""
        return all("" < time < created for time in times)
