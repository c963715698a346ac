"""A GPU that a native pod took before the placeholder of its vGPU: others have one.

Sched opens a vGPU on a GPU that is free, and the placeholder that is to keep it is bound
by kube-scheduler, which may bind somebody else first. The placeholder then waits, and gets
the GPU when that pod has ended. Meanwhile nothing of the SharePods that wait for it has run:
where another node would take one, its decision is undone after a while, with the node set
aside. The same goes for a GPU that its node gave and that cannot be shared, a MIG instance for
example. Of a GPU that has failed, or is not kept any more, that vGPU alone is set aside: another
one of its node may do. Where none would, it goes on waiting here, for there is no better place.
"""

import asyncio
from collections.abc import Sequence
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
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

PLACEHOLDER_BIND_SECONDS: Final = 10.0
"""Seconds that kube-scheduler gets to bind a placeholder, and until others are looked at again."""


class ContendedGpus:
    """Undoes decisions for GPUs that are not to be had.

    Args:
        cluster_state: the cluster's GPUs.
        placeholders: of the vGPUs.
        policy: says whether a SharePod would have a place without its GPU.
        rescheduler: undoes a decision.
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
        self._since: dict[Key, tuple[str, float]] = {}  # SharePod -> vGPU's uid, since when

    def forget(self, key: Key) -> None:
        """The SharePod is gone, or waits no more."""
        self._since.pop(key, None)

    async def reconcile(self, raw: Raw, sharepod: SharePod, demand: Demand | None) -> float | None:
        """Undo the decision about a SharePod that has waited long enough for its GPU.

        Args:
            raw: the SharePod; there is no pod of it yet.
            sharepod: the same.
            demand: what it asks for.

        Returns:
            seconds until to look again: 0 when the decision is undone; None where it does not
            wait for a placeholder, or nobody but its author could choose another GPU.

        Raises:
            ConflictError: the SharePod has changed meanwhile.
        """
        key = sharepod.metadata.key
        taken = (
            self._taken(sharepods.gpuids(sharepod)) if sharepods.can_reschedule(sharepod) else None
        )
        if demand is None or taken is None or sharepods.is_deleting(sharepod):
            self.forget(key)
            return None
        vgpu, why = taken
        now = asyncio.get_running_loop().time()
        uid, since = self._since.get(key, ("", now))
        since = since if uid == vgpu.metadata.uid else now
        self._since[key] = (vgpu.metadata.uid, since)
        if now < since + PLACEHOLDER_BIND_SECONDS:
            return since + PLACEHOLDER_BIND_SECONDS - now
        ledger = self._cluster_state.ledger()
        demand_anew = sharepods.original_demand(sharepod.spec.gpu, demand)
        late = StuckDemand.of(demand_anew, vgpu, frozenset(ledger.nodes))
        if not fit_elsewhere(self._policy, ledger, [late]):
            return PLACEHOLDER_BIND_SECONDS
        await self._rescheduler.reschedule(raw, sharepod, why, gpuid=late.gpuid)
        self.forget(key)
        return 0.0

    def _taken(self, gpuids: Sequence[str]) -> tuple[VGPU, str] | None:
        """The first vGPU that gets no GPU here, and why not."""
        for vgpu in filter(None, map(self._cluster_state.pool.get, gpuids)):
            # Sched may have heard too late that it is of no use; nothing has run there yet.
            found = blocker(vgpu, self._placeholders.of(vgpu.metadata.name)) or failure(vgpu)
            if found is not None and found.reason in STUCK_REASONS:
                return vgpu, found.message
        return None
