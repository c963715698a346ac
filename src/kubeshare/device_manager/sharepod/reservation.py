"""Reserves the GPUs that a SharePod's author has chosen.

An author who writes GPUID and node has decided but not reserved. The reservation follows the same
rules as Sched's. Where the present holders leave no room or exclude the demand, the SharePod is
pending, and its condition says why. Of several GPUs it holds all or none.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import Reservation, holder_of
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, SharePod
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
        current = {gpuid: await self._pool.refresh(gpuid) for gpuid in gpuids}
        held = [gpuid for gpuid, vgpu in current.items() if vgpu and holder_of(vgpu, demand.uid)]
        shares, refusal = self._decide(sharepod, demand, current.keys() - held, current)
        if refusal is not None:
            # Holders of the other GPUs would keep room from demands that need no more.
            for gpuid in held:
                await self._pool.release(gpuid, demand.uid)
            return refusal
        await self._pool.reserve_all(shares)
        return None

    def _decide(
        self,
        sharepod: SharePod,
        demand: Demand,
        gpuids: Iterable[str],
        current: Mapping[str, VGPU | None],
    ) -> tuple[list[Reservation], Report | None]:
        """The shares to add, each decided beside those before it, or why one is refused."""
        shares: list[Reservation] = []
        if refused := self._refusal(sharepod.spec.node_name):
            message = f"node {sharepod.spec.node_name} is {refused}"
            return [], status.not_allocated(Reason.NO_ROOM, message)
        ledger = self._cluster_state.ledger()
        with ledger.what_if():
            for gpuid in sorted(gpuids):
                # The policy sees one demand for each GPU.
                single = msgspec.structs.replace(
                    demand,
                    uid=f"{demand.uid} {gpuid}",
                    device_id=gpuid,
                    nodes=frozenset([sharepod.spec.node_name]),
                    count=1,
                )
                if refusal := _on_other_node(sharepod, gpuid, current[gpuid]):
                    return [], refusal
                decision = self._policy(ledger, single)
                if decision.node is None:
                    return [], _no_room(sharepod.spec.node_name, gpuid, decision)
                commit(ledger, single, decision)
                shares.append(Reservation(demand, decision, sharepod.spec.gpu.attempt))
        return shares, None


def _on_other_node(sharepod: SharePod, gpuid: str, vgpu: VGPU | None) -> Report | None:
    """The refusal of a vGPU that is not on the SharePod's node."""
    node = sharepod.spec.node_name
    if vgpu is None or vgpu.spec.node_name == node:
        return None
    message = f"vGPU {gpuid} is on node {vgpu.spec.node_name}, and spec.nodeName says {node}"
    return status.not_allocated(Reason.NO_ROOM, message)


def _no_room(node: str, gpuid: str, decision: Decision) -> Report:
    places = [f"{node}/{gpuid}", node, decision.field or ""]
    reasons = [decision.reasons[place] for place in places if place in decision.reasons]
    message = "; ".join(reasons) or f"there is no node {node}"
    return status.not_allocated(Reason.NO_ROOM, f"vGPU {gpuid} on node {node}: {message}")
