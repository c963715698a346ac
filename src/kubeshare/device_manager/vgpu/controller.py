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
from kubeshare.device_manager.vgpu.idle_deletion import mark_deleting
from kubeshare.device_manager.vgpu.node_deletion import DeletedNodes
from kubeshare.device_manager.vgpu.orphans import OrphanedHolders
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.meta import Key


class VGPUController:
    """Brings a vGPU one step on.

    Args:
        pool: all vGPUs.
        release: takes holders off.
        deleted_nodes: takes them off where no node will.
        deletion: takes the marked ones down.
        placeholders: keeps the GPUs of the others.
        health: says what is wrong with their GPUs.
        recovery: has a GPU back whose placeholder was lost.
        evictions: has pods leave GPUs.
        disruption_budgets: has those not evicted that are in use.
        events: tells people.
    """

    def __init__(  # noqa: PLR0913 - its steps
        self,
        *,
        pool: VGPUStore,
        orphans: OrphanedHolders,
        deleted_nodes: DeletedNodes,
        deletion: VGPUDeletion,
        placeholders: Placeholders,
        health: VGPUHealth,
        recovery: PlaceholderRecovery,
        evictions: Evictions,
        disruption_budgets: DisruptionBudgets,
        events: Events,
    ) -> None:
        self._pool = pool
        self._orphans = orphans
        self._deleted_nodes = deleted_nodes
        self._deletion = deletion
        self._placeholders = placeholders
        self._health = health
        self._recovery = recovery
        self._evictions = evictions
        self._disruption_budgets = disruption_budgets
        self._events = events

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one vGPU."""
        vgpu = self._pool.get(key.name)
        if vgpu is not None:
            vgpu = await self._orphans.collect(vgpu)
        lost, again = False, None
        if vgpu is not None:
            vgpu, lost, again = await self._deleted_nodes.release(vgpu)
        if vgpu is not None and lost:
            vgpu = await mark_deleting(self._pool, key.name, self._events.released)
        elif vgpu is not None and vgpu.status.phase != DELETING:
            vgpu = await self._health.reconcile(vgpu)
        if vgpu is None:
            await self._deletion.delete_leftover_placeholder(key.name)
            return None
        if vgpu.status.phase == DELETING:
            self._recovery.forget(vgpu)
            return await self._deletion.delete(vgpu)
        if lost:
            return again
        return await self._live_on(vgpu)

    async def _live_on(self, vgpu: VGPU) -> RequeueAfter | None:
        """Have its GPU, and have those leave it that cannot stay."""
        placeholder = await self._placeholders.reconcile(vgpu)
        disruption_budgets = await self._disruption_budgets.reconcile(vgpu)
        regained = await self._recovery.reconcile(vgpu)
        await activate(self._pool, vgpu, self._events)
        return earliest(
            placeholder, disruption_budgets, regained, await self._evictions.reconcile(vgpu)
        )
