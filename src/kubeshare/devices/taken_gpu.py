"""A GPU that a native pod took before the placeholder of its vGPU: others have one.

Sched opens a vGPU on a GPU that is free, and the placeholder that is to keep it is bound
by kube-scheduler, which may bind somebody else first. The placeholder then waits, and gets
the GPU when that pod has ended. Meanwhile nothing of the SharePods that wait for it has run:
where another node would take one, its decision is undone after a while, with the node set
aside. The same goes for a GPU that its node gave and that cannot be shared, a MIG instance for
example. Where none would, it goes on waiting here, for there is no better place.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from kubeshare.api import set_aside, sharepods
from kubeshare.api.coming import hindrance
from kubeshare.api.configuration import Configured
from kubeshare.api.elsewhere import has_another
from kubeshare.api.inventory import Inventory
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import VGPU, SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.policies import Policy
from kubeshare.devices.degraded import trouble_of
from kubeshare.devices.events import Events
from kubeshare.devices.placeholder import Placeholders
from kubeshare.devices.undo import undo
from kubeshare.kube.api import Api
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

PATIENCE: Final = 10.0
"""Seconds that kube-scheduler gets to bind a placeholder, and until others are looked at again."""
_NO_GPU: Final = (Reason.GPU_NOT_FREE, Reason.NOT_SHAREABLE)


class TakenGpus:
    """Undoes decisions for GPUs that somebody else has got.

    Args:
        api: where SharePods are.
        inventory: the cluster's GPUs.
        placeholders: of the vGPUs.
        policy: says whether another node would take a SharePod.
        events: tells people.
        configuration: says for how long a node is set aside.
        wall_clock: says until when a node is set aside.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        api: Api,
        inventory: Inventory,
        placeholders: Placeholders,
        policy: Policy,
        events: Events,
        *,
        configuration: Configured,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._inventory = inventory
        self._placeholders = placeholders
        self._policy = policy
        self._events = events
        self._configuration = configuration
        self._wall_clock = wall_clock
        self._since: dict[Key, tuple[str, float]] = {}  # SharePod -> vGPU's uid, since when

    def forget(self, key: Key) -> None:
        """The SharePod is gone, or waits no more."""
        self._since.pop(key, None)

    async def look(self, raw: Raw, sharepod: SharePod, demand: Demand | None) -> float | None:
        """Undo the decision about a SharePod that has waited long enough for its GPU.

        Args:
            raw: the SharePod; there is no pod of it yet.
            sharepod: the same.
            demand: what it asks for.

        Returns:
            seconds until to look again: 0 when the decision is undone; None where it does not
            wait for a placeholder, or nobody but its author could choose another GPU.

        Raises:
            ConflictError: the SharePod has changed meanwhile.
        """
        key = sharepod.metadata.key
        taken = self._taken(sharepods.gpuids(sharepod)) if sharepods.may_move(sharepod) else None
        if demand is None or taken is None or sharepods.going(sharepod):
            self.forget(key)
            return None
        vgpu, why = taken
        now = asyncio.get_running_loop().time()
        uid, since = self._since.get(key, ("", now))
        since = since if uid == vgpu.metadata.uid else now
        self._since[key] = (vgpu.metadata.uid, since)
        if now < since + PATIENCE:
            return since + PATIENCE - now
        ledger = self._inventory.ledger()
        if not has_another(self._policy, ledger, demand, vgpu, frozenset(ledger.nodes)):
            return PATIENCE
        await self._undo(raw, sharepod, why)
        return 0.0

    def _taken(self, gpuids: Sequence[str]) -> tuple[VGPU, str] | None:
        """The first vGPU that gets no GPU here, and why not."""
        for vgpu in filter(None, map(self._inventory.pool.get, gpuids)):
            found = hindrance(vgpu, self._placeholders.of(vgpu.metadata.name))
            if found is not None and found.reason in _NO_GPU:
                return vgpu, found.message
            # Sched may have heard too late that it is of no use; nothing has run there yet.
            trouble = trouble_of(vgpu)
            if trouble is not None:
                return vgpu, trouble[1]
        return None

    async def _undo(self, raw: Raw, sharepod: SharePod, why: str) -> None:
        noted = set_aside.add(
            sharepod.spec.gpu.set_aside,
            sharepod.spec.node_name,
            why,
            self._wall_clock(),
            timedelta(seconds=self._configuration.now().set_aside_seconds),
        )
        await undo(self._api, raw, noted)
        self._events.node_full(sharepod, noted[-1])
        for gpuid in sharepods.gpuids(sharepod):
            await self._inventory.pool.give_back(gpuid, sharepod.metadata.uid)
        self.forget(sharepod.metadata.key)
