"""Tell nodes which pods are theirs: those of one vGPU that are bound together in one write.

A vGPU is written whole, whatever changes of it, and each program and its node read it again:
of all that starts a SharePod nothing costs the API server more, the more so the more share
the GPU. So while one write of a vGPU is on its way, those that come meanwhile wait for it, and
the next one names all of them. Where nothing is on its way nobody waits.
"""

import asyncio
from weakref import WeakValueDictionary

from kubeshare.api import holders
from kubeshare.api.state.vgpu_store import Change, VGPUStore, holder_of
from kubeshare.api.types.v1 import VGPU


class PodAssignments:
    """Writes the uids of pods into the holders for which they were made.

    Args:
        pool: the vGPUs.
    """

    def __init__(self, pool: VGPUStore) -> None:
        self._pool = pool
        self._blocked: dict[str, dict[str, str]] = {}  # GPUID -> demand -> uid of its pod
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def assign(self, gpuid: str, demand: str, pod_uid: str) -> None:
        """Say which pod the part of a demand is for, unless one is named or it holds none.

        Args:
            gpuid: the vGPU.
            demand: the uid of who asked.
            pod_uid: of its pod, which is bound.

        Raises:
            ConflictError: others changed the vGPU again and again.
            ApiError: any other refusal.
        """
        writing = self._writing.setdefault(gpuid, asyncio.Lock())
        self._blocked.setdefault(gpuid, {})[demand] = pod_uid
        try:
            async with writing:
                # Whoever wrote last may have named this one too, or may have failed to.
                together = self._blocked.pop(gpuid, {}) | {demand: pod_uid}
                await self._pool.update(gpuid, _names(together))
        finally:
            self._forget(gpuid, demand)

    def _forget(self, gpuid: str, demand: str) -> None:
        blocked = self._blocked.get(gpuid, {})
        blocked.pop(demand, None)
        if not blocked:
            self._blocked.pop(gpuid, None)


def _names(pods: dict[str, str]) -> Change:
    def operations(vgpu: VGPU) -> list[holders.Operation] | None:
        found: list[holders.Operation] = []
        for demand, pod_uid in pods.items():
            holder = holder_of(vgpu, demand)
            if holder is not None and not holder.pod_uid:
                found += holders.set_pod_uid(vgpu, demand, pod_uid)
        return found or None

    return operations
