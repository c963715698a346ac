"""Creates vGPUs ahead of demand."""

import secrets

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import GENERATED_ID_PREFIX
from kubeshare.core.ledger.device import Device


async def warm_up(cluster_state: ClusterState, node: str, count: int) -> list[str]:
    """Create vGPUs for free GPUs of a node.

    The kubelet chooses the physical GPU later, so each vGPU is created as the smallest one
    that is free.

    Args:
        cluster_state: the GPUs of the cluster.
        node: the node's name.
        count: how many to create at most.

    Returns:
        the GPUIDs of the new vGPUs.

    Raises:
        StaleDecisionError: the pool has changed in between.
    """
    created: list[str] = []
    for _ in range(count):
        entry = cluster_state.ledger().nodes.get(node)
        if entry is None or not entry.free:
            break
        gpu = entry.free[0]
        gpuid = GENERATED_ID_PREFIX + secrets.token_hex(5)
        device = Device(id=gpuid, node=node, model=gpu.model, memory_bytes=gpu.memory_bytes)
        await cluster_state.pool.create(device, "reserved")
        created.append(gpuid)
    return created
