"""Give a decision that holds no more back to the scheduler.

Sched took a part of a GPU, and it is not there any more: the vGPU went, or the
former pod of the same SharePod has been released. What Sched has written is taken
out of the SharePod, so that it decides again; ``attempt`` stays and counts on.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.v1 import SHAREPODS, ExcludedNode
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import Raw


async def undo_decision(client: Client, raw: Raw, set_aside: Sequence[ExcludedNode] = ()) -> None:
    """Take Sched's decision out of a SharePod.

    Args:
        client: where it is.
        raw: the SharePod as it was seen.
        set_aside: the nodes that it is not to be given for a while.

    Raises:
        ConflictError: it has changed meanwhile.
        ApiError: any other refusal.
    """
    metadata = raw["metadata"]
    gpu = dict(raw["spec"].get("gpu") or {})
    if not gpu.get("idGiven"):
        gpu.pop("id", None)
        gpu.pop("ids", None)
    if set_aside:
        gpu["setAside"] = msgspec.to_builtins(set_aside)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/spec/gpu", "value": gpu},
    ]
    if not gpu.get("nodeGiven"):
        operations.append({"op": "remove", "path": "/spec/nodeName"})
    await client.json_patch(
        SHAREPODS,
        metadata["name"],
        operations,
        metadata["namespace"],
        field_manager=MANAGER_DEVICES,
    )
