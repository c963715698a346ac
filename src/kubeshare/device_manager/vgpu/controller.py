"""The steps of one vGPU's life, in order."""

from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.placeholder.disruption import DisruptionBudgets
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.placeholder.recovery import PlaceholderRecovery
from kubeshare.device_manager.vgpu.activation import activate
from kubeshare.device_manager.vgpu.deletion import VGPUDeletion
from kubeshare.device_manager.vgpu.eviction import Evictions
from kubeshare.device_manager.vgpu.health import VGPUHealth
from kubeshare.device_manager.vgpu.idle_deletion import let_go
from kubeshare.device_manager.vgpu.node_deletion import DeletedNodes
from kubeshare.device_manager.vgpu.orphans import OrphanedHolders
from kubeshare.kube.controller.controller import RequeueAfter, soonest
from kubeshare.kube.meta import Key


class VGPUController:
    """Brings a vGPU one step on.

    Args:
        pool: all vGPUs.
        release: takes holders off.
        lost_nodes: takes them off where no node will.
        dismantle: takes the marked ones down.
        placeholders: keeps the GPUs of the others.
        degraded: says what is wrong with their GPUs.
        regain: has a GPU back whose placeholder was lost.
        evictions: has pods leave GPUs.
        guard: has those not evicted that are in use.
        events: tells people.
    """

    def __init__(  # noqa: PLR0913 - its steps
        self,
        *,
        pool: VGPUStore,
        release: OrphanedHolders,
        lost_nodes: DeletedNodes,
        dismantle: VGPUDeletion,
        placeholders: Placeholders,
        degraded: VGPUHealth,
        regain: PlaceholderRecovery,
        evictions: Evictions,
        guard: DisruptionBudgets,
        events: Events,
    ) -> None:
        self._pool = pool
        self._release = release
        self._lost_nodes = lost_nodes
        self._dismantle = dismantle
        self._placeholders = placeholders
        self._degraded = degraded
        self._regain = regain
        self._evictions = evictions
        self._guard = guard
        self._events = events

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one vGPU."""
        vgpu = self._pool.get(key.name)
        if vgpu is not None:
            vgpu = await self._release.orphans(vgpu)
        lost, again = False, None
        if vgpu is not None:
            vgpu, lost, again = await self._lost_nodes.release(vgpu)
        if vgpu is not None and lost:
            vgpu = await let_go(self._pool, key.name, self._events.released)
        elif vgpu is not None and vgpu.status.phase != DELETING:
            vgpu = await self._degraded.look(vgpu)
        if vgpu is None:
            await self._dismantle.leftover(key.name)
            return None
        if vgpu.status.phase == DELETING:
            self._regain.forget(vgpu)
            return await self._dismantle.down(vgpu)
        if lost:
            return again
        return await self._live_on(vgpu)

    async def _live_on(self, vgpu: VGPU) -> RequeueAfter | None:
        """Have its GPU, and have those leave it that cannot stay."""
        placeholder = await self._placeholders.ensure(vgpu)
        guard = await self._guard.ensure(vgpu)
        regained = await self._regain.look(vgpu)
        await activate(self._pool, vgpu, self._events)
        return soonest(placeholder, guard, regained, await self._evictions.look(vgpu))
