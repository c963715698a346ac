"""Take the parts of GPUs that a SharePod's author named, without asking Sched.

Whoever writes GPUID and node themselves has chosen, but has not reserved: that is
done here, by the same rules. Where the present holders leave no room, or do not
want it beside them, it waits, and is told why; of several GPUs it holds all or none.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

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
    """Takes parts of GPUs that were given by name.

    Args:
        cluster_state: the cluster's GPUs.
        policy: says whether the demand fits on the GPU that it names.
    """

    def __init__(self, cluster_state: ClusterState, policy: Policy) -> None:
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._policy = policy
        self._deciding = asyncio.Lock()

    async def reserve(
        self, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> Report | None:
        """Add the holders, and the vGPUs where there are none of those ids: all, or none.

        Returns:
            None when they are there; else why not.

        Raises:
            StaleDecisionError: others changed the GPUs meanwhile.
        """
        # One at a time: the next one sees what the last one has taken.
        async with self._deciding:
            return await self._reserve(sharepod, demand, gpuids)

    async def _reserve(
        self, sharepod: SharePod, demand: Demand, gpuids: Sequence[str]
    ) -> Report | None:
        await self._pool.settle()
        seen = {gpuid: await self._pool.refresh(gpuid) for gpuid in gpuids}
        held = [gpuid for gpuid, vgpu in seen.items() if vgpu and holder_of(vgpu, demand.uid)]
        parts, refusal = self._decide(sharepod, demand, seen.keys() - held, seen)
        if refusal is not None:
            # What it has of the others would keep room from those for whom it is enough.
            for gpuid in held:
                await self._pool.release(gpuid, demand.uid)
            return refusal
        await self._pool.reserve_all(parts)
        return None

    def _decide(
        self,
        sharepod: SharePod,
        demand: Demand,
        gpuids: Iterable[str],
        seen: Mapping[str, VGPU | None],
    ) -> tuple[list[Reservation], Report | None]:
        """The parts to be taken, each beside those before it, or why one of them is refused."""
        parts: list[Reservation] = []
        ledger = self._cluster_state.ledger()
        with ledger.what_if():
            for gpuid in sorted(gpuids):
                # A demand of its own for each GPU that is named.
                asked = msgspec.structs.replace(
                    demand,
                    uid=f"{demand.uid} {gpuid}",
                    device_id=gpuid,
                    nodes=frozenset([sharepod.spec.node_name]),
                    count=1,
                )
                if elsewhere := _elsewhere(sharepod, gpuid, seen[gpuid]):
                    return [], elsewhere
                decision = self._policy(ledger, asked)
                if decision.node is None:
                    return [], _no_room(sharepod.spec.node_name, gpuid, decision)
                commit(ledger, asked, decision)
                parts.append(Reservation(demand, decision, sharepod.spec.gpu.attempt))
        return parts, None


def _elsewhere(sharepod: SharePod, gpuid: str, vgpu: VGPU | None) -> Report | None:
    """It is on another node than its author says."""
    node = sharepod.spec.node_name
    if vgpu is None or vgpu.spec.node_name == node:
        return None
    words = f"vGPU {gpuid} is on node {vgpu.spec.node_name}, and spec.nodeName says {node}"
    return status.not_allocated(Reason.NO_ROOM, words)


def _no_room(node: str, gpuid: str, decision: Decision) -> Report:
    places = [f"{node}/{gpuid}", node, decision.field or ""]
    known = [decision.reasons[place] for place in places if place in decision.reasons]
    words = "; ".join(known) or f"there is no node {node}"
    return status.not_allocated(Reason.NO_ROOM, f"vGPU {gpuid} on node {node}: {words}")
