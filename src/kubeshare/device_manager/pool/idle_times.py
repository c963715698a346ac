"""Since when nobody has held a part of each vGPU."""

import asyncio
from typing import Final

from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU

FIRST_HOLDER_SECONDS: Final = 5.0
"""Seconds that a new vGPU may be without its first holder: who made it is about to take a part."""


class _Seen:
    """What has been seen of one vGPU."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.held = False
        self.since: float | None = None


class IdleTimes:
    """Notes when vGPUs lose their last holder; after a restart time begins anew.

    Args:
        pool: the vGPUs.
    """

    def __init__(self, pool: VGPUStore) -> None:
        self._pool = pool
        self._seen: dict[str, _Seen] = {}
        pool.subscribe(self._changed)

    def seconds(self, vgpu: VGPU) -> float:
        """For how long a vGPU has been without holders; 0 where it has some."""
        since = self._of(vgpu).since
        return 0.0 if since is None else _now() - since

    def not_before(self, vgpu: VGPU) -> float:
        """How long it stays idle at least, since somebody is about to take a part of it."""
        made_for_nobody = vgpu.spec.pool != "onDemand"
        return 0.0 if made_for_nobody or self._of(vgpu).held else FIRST_HOLDER_SECONDS

    def _changed(self, gpuid: str) -> None:
        vgpu = self._pool.get(gpuid)
        if vgpu is None:
            self._seen.pop(gpuid, None)
        else:
            self._of(vgpu)

    def _of(self, vgpu: VGPU) -> _Seen:
        seen = self._seen.get(vgpu.metadata.name)
        if seen is None or seen.uid != vgpu.metadata.uid:
            seen = self._seen[vgpu.metadata.name] = _Seen(vgpu.metadata.uid)
        if vgpu.status.holders:
            seen.held, seen.since = True, None
        elif seen.since is None:
            seen.since = _now()
        return seen


def _now() -> float:
    return asyncio.get_running_loop().time()
