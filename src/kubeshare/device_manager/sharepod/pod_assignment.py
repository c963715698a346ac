"""Writes pod uids into holders, batched by vGPU.

Every change rewrites the whole VGPU object, and each program and its node read it again. That is
the most expensive part of starting a SharePod for the API server, and grows with the number of
pods that share the GPU. So while one write of a vGPU is in flight, further assignments to it are
collected, and the next write makes all of them. The first one waits a moment, too, if other pods
of the vGPU are about to be bound: the more of them, the longer. One that comes alone does not wait.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from kubeshare.api import holders
from kubeshare.api.holders import holder_of
from kubeshare.api.state.vgpu_store import Change, VGPUStore
from kubeshare.api.types.v1 import VGPU, Holder

GATHER_SECONDS_EACH: Final = 0.04
"""Seconds that an assignment waits for each other pod that may be bound to its vGPU soon."""
MAX_GATHER_SECONDS: Final = 0.3


class PodAssignments:
    """Writes the uids of bound pods into their holders.

    Args:
        pool: the vGPUs.
        still_runs: whether a pod (uid) of a holder may still run.
    """

    def __init__(self, pool: VGPUStore, still_runs: Callable[[Holder, str], bool]) -> None:
        self._pool = pool
        self._still_runs = still_runs
        self._collected: dict[str, dict[str, str]] = {}  # vGPU -> demand uid -> pod uid
        self._gathered: dict[str, asyncio.Event] = {}  # vGPU -> set when nobody waits any more
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def assign(
        self, vgpu: str, demand_uid: str, pod_uid: str, *, gather: bool = True
    ) -> None:
        """Write the uid of a bound pod into the holder of its demand on the vGPU of this name.

        Args:
            vgpu: the name of the vGPU.
            demand_uid: the uid of the demand.
            pod_uid: the uid of the pod.
            gather: whether to wait for other pods of the vGPU.

        Nothing is written where there is no holder, or it has a pod uid already.

        Raises:
            ConflictError: the vGPU has changed again and again.
            ApiError: the API server refuses for another reason.
        """
        writing = self._writing.setdefault(vgpu, asyncio.Lock())
        self._collected.setdefault(vgpu, {})[demand_uid] = pod_uid
        try:
            if gather:
                await self._gather(vgpu)
            async with writing:
                # The last write may have included this assignment, or may have failed.
                together = self._collected.pop(vgpu, {}) | {demand_uid: pod_uid}
                await self._pool.update(vgpu, self._assign_all(together))
        finally:
            self._forget(vgpu, demand_uid)

    async def _gather(self, name: str) -> None:
        """Wait for other pods that may be bound to a vGPU soon; all wait together."""
        vgpu, collected = self._pool.get(name), self._collected[name]
        holding = vgpu.status.holders if vgpu else ()
        expected = sum(not each.pod_uid and each.demand not in collected for each in holding)
        gathered = self._gathered.setdefault(name, asyncio.Event())
        try:
            if expected:
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        min(MAX_GATHER_SECONDS, GATHER_SECONDS_EACH * expected)
                    ):
                        await gathered.wait()
        finally:
            gathered.set()
            if self._gathered.get(name) is gathered:
                del self._gathered[name]

    def _assign_all(self, pods: dict[str, str]) -> Change:
        def operations(vgpu: VGPU) -> list[holders.Operation] | None:
            found: list[holders.Operation] = []
            for demand_uid, pod_uid in pods.items():
                holder = holder_of(vgpu, demand_uid)
                if holder and not holder.pod_uid and self._still_runs(holder, pod_uid):
                    found += holders.set_pod_uid(vgpu, demand_uid, pod_uid)
            return found or None

        return operations

    def _forget(self, vgpu: str, demand_uid: str) -> None:
        collected = self._collected.get(vgpu, {})
        collected.pop(demand_uid, None)
        if not collected:
            self._collected.pop(vgpu, None)
