"""Make vGPUs ahead of demand, as many as their pool is to have."""

import secrets

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import GENERATED_ID_PREFIX
from kubeshare.core.ledger.device import Device


async def warm_up(cluster_state: ClusterState, node: str, count: int) -> list[str]:
    """Make vGPUs on a node, of GPUs that are free.

    What a GPU turns out to be is known only when the kubelet has chosen it, so each is made as
    the smallest that is free.

    Args:
        cluster_state: the cluster's GPUs.
        node: its name.
        count: how many at most.

    Returns:
        the ids of those that were made.

    Raises:
        StaleDecisionError: others changed the pool meanwhile.
    """
    made: list[str] = []
    for _ in range(count):
        entry = cluster_state.ledger().nodes.get(node)
        if entry is None or not entry.free:
            break
        gpu = entry.free[0]
        gpuid = GENERATED_ID_PREFIX + secrets.token_hex(5)
        device = Device(id=gpuid, node=node, model=gpu.model, memory_bytes=gpu.memory_bytes)
        await cluster_state.pool.create(device, "reserved")
        made.append(gpuid)
    return made
