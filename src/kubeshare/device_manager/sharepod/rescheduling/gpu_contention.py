"""Reschedules SharePods whose vGPU does not get, or has lost, its GPU.

Sched creates a vGPU for a free GPU, and kube-scheduler binds its placeholder. kube-scheduler may
bind a native pod to the GPU first; then the placeholder is pending until that pod has ended.
Until then nothing of the SharePods on this vGPU has run. Where another node would take such a
SharePod, its decision is given up after a while, and the node is excluded. The same applies to a
GPU that cannot be shared, for example a MIG instance. For a GPU that has failed or lost its
placeholder only that vGPU is excluded, since another one of its node may do. Where nothing else
would take the SharePod, it stays pending here.
"""

from typing import Final

from kubeshare.api import sharepods
from kubeshare.api.predicates.alternatives import STUCK_REASONS, StuckDemand, fit_elsewhere
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.v1 import VGPU, SharePod
from kubeshare.api.vgpu_readiness import blocker, failure
from kubeshare.core.demand import Demand
from kubeshare.core.policies import Policy
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.sharepod.rescheduling.reschedule import Rescheduler
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

PLACEHOLDER_BIND_SECONDS: Final = 10.0
"""Seconds that a vGPU may be blocked, and between searches for alternatives."""


class ContendedGpus:
    """Reschedules SharePods whose vGPU is blocked.

    Args:
        cluster_state: the GPUs of the cluster.
        placeholders: the placeholder pods of the vGPUs.
        policy: whether a SharePod could be placed without its vGPU.
        rescheduler: gives up a decision.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        placeholders: Placeholders,
        policy: Policy,
        rescheduler: Rescheduler,
    ) -> None:
        self._cluster_state = cluster_state
        self._placeholders = placeholders
        self._policy = policy
        self._rescheduler = rescheduler
        self._blocked: PendingSince[Key] = PendingSince()  # SharePods; the uid is the vGPU's

    def forget(self, key: Key) -> None:
        """Drop the timer of a SharePod: it is gone, or no longer blocked."""
        self._blocked.forget(key)

    async def reconcile(self, raw: Raw, sharepod: SharePod, demand: Demand | None) -> float | None:
        """Reschedule a SharePod without a pod whose vGPU has been blocked for long enough.

        Returns:
            seconds until to check again; 0 when it has been rescheduled; None where no vGPU is
            blocked, or only the author could choose another GPU.

        Raises:
            ConflictError: the SharePod has changed in between.
        """
        key = sharepod.metadata.key
        blocked = None
        if (
            demand is not None
            and sharepods.can_reschedule(sharepod)
            and not sharepods.is_deleting(sharepod)
        ):
            blocked = self._first_blocked(sharepod)
        if demand is None or blocked is None:
            self.forget(key)
            return None
        vgpu, why = blocked
        if left := self._blocked.remaining(key, PLACEHOLDER_BIND_SECONDS, vgpu.metadata.uid):
            return left
        ledger = self._cluster_state.ledger()
        undecided = sharepods.original_demand(sharepod.spec.gpu, demand)
        late = StuckDemand.of(undecided, vgpu, frozenset(ledger.nodes))
        if not fit_elsewhere(self._policy, ledger, [late]):
            return PLACEHOLDER_BIND_SECONDS
        await self._rescheduler.reschedule(raw, sharepod, why, gpuid=late.gpuid)
        self.forget(key)
        return 0.0

    def _first_blocked(self, sharepod: SharePod) -> tuple[VGPU, str] | None:
        """The first vGPU that waiting alone may never unblock, and why."""
        gpuids = sharepods.gpuids(sharepod)
        pool, uid = self._cluster_state.pool, sharepod.metadata.uid
        for vgpu in pool.named(sharepod.spec.node_name, gpuids, uid):
            # Sched may have chosen a vGPU just before it failed; nothing has run there yet.
            found = blocker(vgpu, self._placeholders.of(vgpu.metadata.name)) or failure(vgpu)
            if found is not None and found.reason in STUCK_REASONS:
                return vgpu, found.message
        return None
