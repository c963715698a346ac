"""Creates vGPUs ahead of demand."""

import secrets

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.core.gpuid import RESERVED_PREFIX
from kubeshare.core.policies.opening import new_device


async def warm_up(cluster_state: ClusterState, node: str, count: int) -> list[str]:
    """Create vGPUs for free GPUs of a node.

    Each vGPU is created for the smallest GPU that is free: for a selected one where the node's
    driver gives GPUs by UUID.

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
        smallest = min(entry.free, key=lambda kind: (kind.memory_bytes, kind.model))
        gpuid = RESERVED_PREFIX + secrets.token_hex(5)
        device = new_device(gpuid, node, smallest, entry.selectable)
        await cluster_state.pool.create(device, "reserved")
        created.append(gpuid)
    return created
