"""Removes the holders of ended pods, batched by vGPU.

Every change rewrites the whole VGPU object, and fails if the vGPU has changed since it was read.
So when many pods of one GPU end together, single removals would refuse each other. While one write
of a vGPU is in flight, further removals from it are collected, and the next write makes all of
them. Without a write in flight nothing waits.
"""

import asyncio
from collections.abc import Collection
from typing import Final
from weakref import WeakValueDictionary

import structlog

from kubeshare.api import holders
from kubeshare.api.types.constants import MANAGER_NODE
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError
from kubeshare.node.node_view import NODE_VGPUS

log = structlog.get_logger(__name__)

# Other programs add and remove holders of the same vGPU: an attempt fails only if one of
# their writes succeeded.
_ATTEMPTS: Final = 20


class HolderReleases:
    """Removes the holders of ended pods.

    Args:
        client: writes the vGPUs.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # vGPU -> call of release -> pod uid
        self._collected: dict[str, dict[object, str]] = {}
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def release(self, vgpu: VGPU, pod_uid: str) -> None:
        """Remove the holders that name a pod from a vGPU.

        Nothing is written if there is none. A holder of the same demand for a newer pod stays.

        Raises:
            NotFoundError: the vGPU is gone.
            ConflictError: the vGPU has changed again and again.
            ApiError: the API server refuses for another reason, or cannot be reached.
        """
        name = vgpu.metadata.name
        writing = self._writing.setdefault(name, asyncio.Lock())
        call = object()
        self._collected.setdefault(name, {})[call] = pod_uid
        try:
            async with writing:
                # Unless the last write has included it.
                if call in self._collected.get(name, {}):
                    await self._write(vgpu)
        finally:
            self._forget(name, call)

    async def _write(self, vgpu: VGPU) -> None:
        """Remove all that has been collected; if that fails, the others do it themselves."""
        name = vgpu.metadata.name
        together = self._collected.pop(name)
        try:
            await self._remove(vgpu, set(together.values()))
        except BaseException:
            self._collected.setdefault(name, {}).update(together)
            raise

    async def _remove(self, vgpu: VGPU, pod_uids: Collection[str]) -> None:
        name = vgpu.metadata.name
        for _ in range(_ATTEMPTS):
            demands = {each.demand for each in vgpu.status.holders if each.pod_uid in pod_uids}
            if not demands:
                return
            try:
                operations = holders.remove(vgpu, *demands)
                await self._client.json_patch(
                    NODE_VGPUS, name, operations, subresource="status", field_manager=MANAGER_NODE
                )
            except ConflictError:
                log.info("vGPU changed, trying again", vgpu=name)
            else:
                return
            vgpu = await self._client.get(NODE_VGPUS, name)
        raise ConflictError(f"vGPU {name} changed at each of {_ATTEMPTS} attempts")

    def _forget(self, vgpu: str, call: object) -> None:
        collected = self._collected.get(vgpu, {})
        collected.pop(call, None)
        if not collected:
            self._collected.pop(vgpu, None)
