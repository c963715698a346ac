"""Writes pod uids into holders, batched by vGPU.

Every change rewrites the whole VGPU object, and each program and its node read it again. That is
the most expensive part of starting a SharePod for the API server, and grows with the number of
pods that share the GPU. So while one write of a vGPU is in flight, further assignments to it are
collected, and the next write makes all of them. Without a write in flight nothing waits.
"""

import asyncio
from weakref import WeakValueDictionary

from kubeshare.api import holders
from kubeshare.api.holders import holder_of
from kubeshare.api.state.vgpu_store import Change, VGPUStore
from kubeshare.api.types.v1 import VGPU


class PodAssignments:
    """Writes the uids of bound pods into their holders.

    Args:
        pool: the vGPUs.
    """

    def __init__(self, pool: VGPUStore) -> None:
        self._pool = pool
        self._collected: dict[str, dict[str, str]] = {}  # vGPU -> demand uid -> pod uid
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def assign(self, vgpu: str, demand_uid: str, pod_uid: str) -> None:
        """Write the uid of a bound pod into the holder of its demand on the vGPU of this name.

        Nothing is written where there is no holder, or it has a pod uid already.

        Raises:
            ConflictError: the vGPU has changed again and again.
            ApiError: the API server refuses for another reason.
        """
        writing = self._writing.setdefault(vgpu, asyncio.Lock())
        self._collected.setdefault(vgpu, {})[demand_uid] = pod_uid
        try:
            async with writing:
                # The last write may have included this assignment, or may have failed.
                together = self._collected.pop(vgpu, {}) | {demand_uid: pod_uid}
                await self._pool.update(vgpu, _assign_all(together))
        finally:
            self._forget(vgpu, demand_uid)

    def _forget(self, vgpu: str, demand_uid: str) -> None:
        collected = self._collected.get(vgpu, {})
        collected.pop(demand_uid, None)
        if not collected:
            self._collected.pop(vgpu, None)


def _assign_all(pods: dict[str, str]) -> Change:
    def operations(vgpu: VGPU) -> list[holders.Operation] | None:
        found: list[holders.Operation] = []
        for demand_uid, pod_uid in pods.items():
            holder = holder_of(vgpu, demand_uid)
            if holder is not None and not holder.pod_uid:
                found += holders.set_pod_uid(vgpu, demand_uid, pod_uid)
        return found or None

    return operations
