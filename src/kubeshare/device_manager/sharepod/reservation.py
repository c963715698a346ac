"""Reserves the GPUs that a SharePod's author has chosen.

An author who writes GPUID and node has decided but not reserved. The reservation follows the same
rules as Sched's. Where the present holders leave no room or exclude the demand, the SharePod is
pending, and its condition says why. Of several GPUs it holds all or none.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kubeshare.api.holders import holder_of
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import Reservation
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SharePod
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.policies import Policy
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.status import Report


class Reservations:
    """Adds the holders of SharePods whose author has chosen the GPUs.

    Args:
        cluster_state: the GPUs of the cluster.
        policy: whether the demand fits on a given GPU.
        refusal: why SharePods may not use a node; ``""`` if they may.
    """

    def __init__(
        self, cluster_state: ClusterState, policy: Policy, refusal: Callable[[str], str]
    ) -> None:
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._policy = policy
        self._refusal = refusal
        self._deciding = asyncio.Lock()

    async def reserve(
        self, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> Report | None:
        """Add the holders, and create the vGPUs that do not exist: all or none.

        Returns:
            None when the holders exist; else why not.

        Raises:
            StaleDecisionError: the vGPUs have changed in between.
        """
        # One at a time, so that each decision sees the holders of the one before it.
        async with self._deciding:
            return await self._reserve(sharepod, demand, gpuids)

    async def _reserve(
        self, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> Report | None:
        await self._pool.settle()
        node = sharepod.spec.node_name
        for gpuid in gpuids:
            await self._pool.refresh_identity(node, gpuid, demand.uid)
        held = {
            vgpu.gpuid: vgpu.metadata.name
            for vgpu in self._pool.named(node, gpuids, demand.uid)
            if holder_of(vgpu, demand.uid)
        }
        shares, refusal = self._decide(sharepod, demand, set(gpuids) - held.keys())
        if refusal is not None:
            # Holders of the other GPUs would keep room from demands that need no more.
            for name in held.values():
                await self._pool.release(name, demand.uid)
            return refusal
        await self._pool.reserve_all(shares)
        return None

    def _decide(
        self, sharepod: SharePod, demand: Demand, gpuids: Iterable[str]
    ) -> tuple[list[Reservation], Report | None]:
        """The shares to add, each decided beside those before it, or why one is refused."""
        shares: list[Reservation] = []
        if refused := self._refusal(sharepod.spec.node_name):
            message = f"node {sharepod.spec.node_name} is {refused}"
            return [], status.not_allocated(Reason.NO_ROOM, message)
        ledger = self._cluster_state.ledger()
        node = frozenset([sharepod.spec.node_name])
        with ledger.what_if():
            for gpuid in sorted(gpuids):
                # The policy sees one demand for each GPU.
                single = msgspec.structs.replace(
                    demand,
                    uid=f"{demand.uid} {gpuid}",
                    device_id=gpuid,
                    device_nodes=node,
                    nodes=node,
                    count=1,
                )
                decision = self._policy(ledger, single)
                if decision.node is None:
                    return [], _no_room(sharepod.spec.node_name, gpuid, decision)
                commit(ledger, single, decision)
                shares.append(Reservation(demand, decision, sharepod.spec.gpu.attempt))
        return shares, None


def _no_room(node: str, gpuid: str, decision: Decision) -> Report:
    places = [f"{node}/{gpuid}", node, decision.field or ""]
    reasons = [decision.reasons[place] for place in places if place in decision.reasons]
    message = "; ".join(reasons) or f"there is no node {node}"
    return status.not_allocated(Reason.NO_ROOM, f"vGPU {gpuid} on node {node}: {message}")
