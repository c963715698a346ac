"""Tracks how long each vGPU has been without holders."""

from typing import Final

from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.controller.pending import PendingSince, loop_time

FIRST_HOLDER_SECONDS: Final = 5.0
"""Seconds that a new vGPU may be without its first holder, which its creator is about to add."""


class IdleTimes:
    """Records when vGPUs lose their last holder; a restarted program begins anew.

    So does a vGPU of an older version than the last one.

    Args:
        pool: the vGPUs.
    """

    def __init__(self, pool: VGPUStore) -> None:
        self._pool = pool
        self._idle: PendingSince[str] = PendingSince()  # by name
        self._was_held: dict[str, str] = {}  # name -> uid
        self._versions: dict[str, int] = {}
        pool.subscribe(self._on_change)

    def seconds(self, vgpu: VGPU) -> float:
        """How long a vGPU has been without holders; 0 where it has some."""
        self._update(vgpu)
        if vgpu.status.holders:
            return 0.0
        return loop_time() - self._idle.since(vgpu.metadata.name, vgpu.metadata.uid)

    def minimum_seconds(self, vgpu: VGPU) -> float:
        """How long a vGPU stays idle at least, because its first holder is about to be added."""
        self._update(vgpu)
        was_held = self._was_held.get(vgpu.metadata.name) == vgpu.metadata.uid
        on_demand = vgpu.spec.pool == "onDemand"
        return FIRST_HOLDER_SECONDS if on_demand and not was_held else 0.0

    def _on_change(self, gpuid: str) -> None:
        vgpu = self._pool.get(gpuid)
        if vgpu is None:
            self._idle.forget(gpuid)
            self._was_held.pop(gpuid, None)
            self._versions.pop(gpuid, None)
        else:
            self._update(vgpu)

    def _update(self, vgpu: VGPU) -> None:
        name, uid = vgpu.metadata.name, vgpu.metadata.uid
        version = int(vgpu.metadata.resource_version)
        if version < self._versions.get(name, 0):
            # An older record has been restored: its node may still know pods that are not in it.
            self._idle.forget(name)
            self._was_held.pop(name, None)
        self._versions[name] = version
        if vgpu.status.holders:
            self._idle.forget(name)
            self._was_held[name] = uid
        else:
            self._idle.since(name, uid)
