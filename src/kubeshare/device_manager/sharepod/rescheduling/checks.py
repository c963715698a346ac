"""Runs the checks that may reschedule a SharePod, in order."""

from kubeshare.api import sharepods
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SharePod
from kubeshare.core.demand import Demand
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.sharepod.rescheduling.gpu_contention import ContendedGpus
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.rescheduling.reschedule import Rescheduler
from kubeshare.device_manager.sharepod.rescheduling.unschedulable import UnschedulablePods
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw


class RescheduleChecks:
    """Reschedules SharePods whose decision no longer holds.

    Args:
        context: the state and the services that the checks use.
        lost_allocations: the check of bound pods.
    """

    def __init__(self, context: Context, lost_allocations: LostAllocations) -> None:
        rescheduler = Rescheduler(
            context.client,
            context.pool,
            context.events,
            configuration=context.configuration,
            wall_clock=context.wall_clock,
        )
        self._unschedulable_pods = UnschedulablePods(
            context.client, context.cluster_state, rescheduler, context.metrics
        )
        self._contended_gpus = ContendedGpus(
            context.cluster_state, context.placeholders, context.policy, rescheduler
        )
        self._lost_allocations = lost_allocations

    async def reconcile(
        self, raw: Raw, sharepod: SharePod, demand: Demand | None, pod: Pod | None
    ) -> float | None:
        """Reschedule a SharePod if one of the checks says so.

        Returns:
            seconds until to check again; 0 when the SharePod has been rescheduled; None where
            nothing is wrong.

        Raises:
            ConflictError: the SharePod or its pod has changed in between.
        """
        wait = await self._unschedulable_pods.reconcile(raw, sharepod, pod)
        if wait is not None:
            return wait
        if pod is None:
            return await self._contended_gpus.reconcile(raw, sharepod, demand)
        gpuids = sharepods.gpuids(sharepod) if demand else ()
        return await self._lost_allocations.reconcile(pod, sharepod.metadata.uid, gpuids, sharepod)

    def forget_decision(self, key: Key) -> None:
        """Drop what is known about the decision of a SharePod: it has been cleared."""
        self._unschedulable_pods.forget(key)
        self._contended_gpus.forget(key)

    def forget(self, key: Key) -> None:
        """Drop what is known about a SharePod: it is gone."""
        self.forget_decision(key)
        self._lost_allocations.forget(key)
