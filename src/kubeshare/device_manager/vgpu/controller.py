"""Reconciles one vGPU, step by step."""

from typing import Final

from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.owned.static_vgpus import StaticVGPUs
from kubeshare.device_manager.placeholder.claims import vgpu_of
from kubeshare.device_manager.placeholder.disruption import DisruptionBudgets
from kubeshare.device_manager.placeholder.recovery import PlaceholderRecovery
from kubeshare.device_manager.sharepod.event_handlers import with_assumed
from kubeshare.device_manager.vgpu.activation import activate
from kubeshare.device_manager.vgpu.deletion import VGPUDeletion, mark_deleting
from kubeshare.device_manager.vgpu.event_handlers import VGPUEventHandlers
from kubeshare.device_manager.vgpu.eviction import Evictions
from kubeshare.device_manager.vgpu.health import VGPUHealth
from kubeshare.device_manager.vgpu.node_deletion import DeletedNodes
from kubeshare.device_manager.vgpu.orphans import OrphanedHolders
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.controller.controller import Controller, RequeueAfter, earliest
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

WORKERS: Final = 8
"""vGPUs reconciled at the same time; a reconcile mostly waits for the API server."""


class VGPUController:
    """Reconciles vGPUs.

    Args:
        context: the state and the services that its steps use.
        static: the vGPUs of owned nodes.
    """

    def __init__(self, context: Context, static: StaticVGPUs) -> None:
        client, cluster_state, events = context.client, context.cluster_state, context.events
        placeholders, informers = context.placeholders, context.informers
        nodes = informers.nodes.store
        self._pool = cluster_state.pool
        self._placeholders = placeholders
        self._static = static
        self._events = events
        self._orphans = OrphanedHolders(
            client, cluster_state, informers.sharepods.store, context.metrics
        )
        self._deleted_nodes = DeletedNodes(client, nodes, cluster_state.pool, events)
        self._health = VGPUHealth(context)
        self._deletion = VGPUDeletion(client, cluster_state, placeholders, context.metrics)
        self._disruption_budgets = DisruptionBudgets(
            client, cluster_state, placeholders, context.idle_times
        )
        self._recovery = PlaceholderRecovery(nodes, placeholders, events)
        self._evictions = Evictions(client, cluster_state, nodes, context.configuration, events)
        self._handlers = VGPUEventHandlers(
            cluster_state, informers.sharepods.store, nodes, self._evictions
        )
        self._informers = informers
        self._claims = context.claims

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers, handlers = self._informers, self._handlers
        controller: Controller[Key] = Controller("vgpus", self.reconcile, workers=WORKERS)
        controller.watch_changes(informers.vgpus, with_assumed(self._pool, handlers.on_vgpu))
        controller.watch_changes(informers.pods, handlers.on_pod)
        controller.watch_changes(informers.sharepods, handlers.on_sharepod)
        controller.watch(informers.nodes, handlers.on_node, when=_availability_differs)
        controller.watch(informers.gpunodes, handlers.on_node)
        controller.watch(informers.configmaps, handlers.all_vgpus)
        controller.watch(self._claims.reflector, vgpu_of)
        program.add_controller(controller)
        add_resync(program, controller, informers.vgpus.store.snapshot)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile one vGPU."""
        vgpu, binding = self._pool.get(key.name), None
        if vgpu is None:
            self._orphans.forget(key.name)
        else:
            vgpu, binding = await self._orphans.collect(vgpu)
        return earliest(binding, await self._reconcile(key, vgpu))

    async def _reconcile(self, key: Key, vgpu: VGPU | None) -> RequeueAfter | None:
        """Reconcile a vGPU without its orphaned holders."""
        node_deleted, again = False, None
        if vgpu is not None:
            vgpu, node_deleted, again = await self._deleted_nodes.release_holders(vgpu)
        if vgpu is not None and node_deleted:
            vgpu = await mark_deleting(self._pool, key.name, self._events.released)
        elif vgpu is not None and vgpu.status.phase != DELETING:
            vgpu = await self._health.reconcile(vgpu)
        if vgpu is None:
            await self._deletion.delete_leftover_placeholder(key.name)
            return None
        if vgpu.status.phase == DELETING:
            self._recovery.forget(vgpu)
            return await self._deletion.reconcile(vgpu)
        if node_deleted:
            return again
        return await self._reconcile_live(vgpu)

    async def _reconcile_live(self, vgpu: VGPU) -> RequeueAfter | None:
        """Reconcile a vGPU that is neither being deleted nor on a deleted node."""
        kept = None
        claim = await self._placeholders.remove_without_claim(vgpu)
        if vgpu.spec.is_static:
            await self._static.delete_placeholder(vgpu)
        else:
            kept = await self._reconcile_placeholder(vgpu)
        await activate(self._pool, vgpu, self._events)
        return earliest(kept, claim, await self._evictions.reconcile(vgpu))

    async def _reconcile_placeholder(self, vgpu: VGPU) -> RequeueAfter | None:
        placeholder = await self._placeholders.reconcile(vgpu)
        disruption_budget = await self._disruption_budgets.reconcile(vgpu)
        return earliest(placeholder, disruption_budget, await self._recovery.reconcile(vgpu))


def _availability_differs(change: Change[core_v1.Node]) -> bool:
    """The node is new or gone, or what it does with pods has changed."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.is_schedulable, old.driver_upgrade) != (new.is_schedulable, new.driver_upgrade)
