"""Take the part of a GPU that a SharePod's author named, without asking Sched.

Whoever writes GPUID and node themselves has chosen, but has not reserved: that is
done here, by the same rules. Where the present holders leave no room, or do not
want it beside them, it waits, and is told why.
"""

import asyncio

import msgspec

from kubeshare.api.inventory import Inventory
from kubeshare.api.pool import holder_of
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.policies import Policy
from kubeshare.devices import report
from kubeshare.devices.report import Report


class Reserve:
    """Takes parts of GPUs that were given by name.

    Args:
        inventory: the cluster's GPUs.
        policy: says whether the demand fits on the GPU that it names.
    """

    def __init__(self, inventory: Inventory, policy: Policy) -> None:
        self._inventory = inventory
        self._pool = inventory.pool
        self._policy = policy
        self._deciding = asyncio.Lock()

    async def take(self, sharepod: SharePod, demand: Demand, gpuid: str) -> Report | None:
        """Add the holder, and the vGPU where there is none of that id.

        Returns:
            None when it is there; else why not.

        Raises:
            StaleDecisionError: others changed the GPU meanwhile.
        """
        # One at a time: the next one sees what the last one has taken.
        async with self._deciding:
            return await self._take(sharepod, demand, gpuid)

    async def _take(self, sharepod: SharePod, demand: Demand, gpuid: str) -> Report | None:
        await self._pool.settle()
        vgpu = await self._pool.refresh(gpuid)
        if vgpu is not None and holder_of(vgpu, demand.uid):
            return None
        node = sharepod.spec.node_name
        if vgpu is not None and vgpu.spec.node_name != node:
            words = f"vGPU {gpuid} is on node {vgpu.spec.node_name}, and spec.nodeName says {node}"
            return report.waits(Reason.NO_ROOM, words)
        asked = msgspec.structs.replace(demand, device_id=gpuid, nodes=frozenset([node]))
        decision = self._policy(self._inventory.ledger(), asked)
        if decision.node is None:
            places = [f"{node}/{gpuid}", node, decision.field or ""]
            known = [decision.reasons[place] for place in places if place in decision.reasons]
            words = "; ".join(known) or f"there is no node {node}"
            return report.waits(Reason.NO_ROOM, f"vGPU {gpuid} on node {node}: {words}")
        await self._pool.take(asked, decision, sharepod.spec.gpu.attempt)
        return None
