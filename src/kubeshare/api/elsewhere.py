"""Whether a demand that waits for one vGPU would find a place without it."""

import msgspec

from kubeshare.api.names import GENERATED_ID_PREFIX
from kubeshare.api.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy


def has_another(
    policy: Policy, ledger: Ledger, demand: Demand, vgpu: VGPU, nodes: frozenset[str]
) -> bool:
    """Another node would take it, were nobody waiting for this vGPU.

    Args:
        policy: places demands.
        ledger: the cluster as it is now; it is left as it was.
        demand: who waits.
        vgpu: what it waits for.
        nodes: those that its pod may go to.
    """
    given = demand.device_id.startswith(GENERATED_ID_PREFIX)
    asked = msgspec.structs.replace(
        demand,
        device_id="" if given else demand.device_id,
        nodes=nodes - {vgpu.spec.node_name},
    )
    with ledger.what_if():
        for holder in vgpu.status.holders:
            ledger.release(holder.demand)
        return policy(ledger, asked).node is not None
