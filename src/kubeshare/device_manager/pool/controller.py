"""Reconciles the vGPU pool of one node with its policy."""

from kubeshare.api.types.core_v1 import Node
from kubeshare.core.pool import Plan, plan
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.pool import event_handlers
from kubeshare.device_manager.pool.reclaim import Reclaimer
from kubeshare.device_manager.pool.state import NodePools, settings_of, unknown_policy
from kubeshare.device_manager.pool.warmup import warm_up
from kubeshare.device_manager.sharepod.event_handlers import with_assumed
from kubeshare.device_manager.vgpu.deletion import mark_deleting
from kubeshare.kube.controller.controller import Controller, RequeueAfter, own_key
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key


class PoolController:
    """Deletes idle vGPUs of a node that its policy does not keep, and creates warm ones.

    Args:
        context: the state and the services that it uses.
        pools: the vGPUs of each node.
        reclaimer: how many GPUs waiting native pods claim.
    """

    def __init__(self, context: Context, pools: NodePools, reclaimer: Reclaimer) -> None:
        self._informers = context.informers
        self._nodes = context.informers.nodes.store
        self._cluster_state = context.cluster_state
        self._pools = pools
        self._configuration = context.configuration
        self._reclaimer = reclaimer
        self._events = context.events
        self._metrics = context.metrics

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("pools", self.reconcile)
        controller.watch_changes(
            informers.vgpus, with_assumed(self._cluster_state.pool, event_handlers.on_vgpu)
        )
        controller.watch(informers.nodes, own_key, when=event_handlers.node_differs)
        controller.watch(informers.gpunodes, own_key)
        controller.watch(
            informers.pods,
            event_handlers.node_of_whole_gpu_pod,
            when=event_handlers.pod_usage_differs,
        )
        controller.watch(informers.configmaps, lambda _: ())

        def all_nodes() -> None:
            for key in informers.nodes.store.snapshot():
                controller.add(key)

        informers.configuration.subscribe(all_nodes)
        self._reclaimer.subscribe(lambda node: controller.add(Key("", node)))
        program.add_controller(controller)
        add_resync(program, controller, self._nodes.snapshot)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile the pool of one node."""
        node = self._nodes.by_key(key)
        if node is None:
            return None  # the vGPU controller deletes its vGPUs
        await self._cluster_state.pool.settle()
        if wrong := unknown_policy(node):
            self._events.unknown_policy(node, wrong)
        planned = self._plan(node)
        for gpuid in planned.release:
            await self._mark_deleting(node, gpuid)
        created = await warm_up(self._cluster_state, node.metadata.name, planned.make)
        self._metrics.warmed.inc(len(created))
        return None if planned.again is None else RequeueAfter(planned.again)

    def _plan(self, node: Node) -> Plan:
        settings = settings_of(self._configuration.now().pool, node)
        return plan(self._pools.of(node), settings, self._reclaimer.claimed(node.metadata.name))

    async def _mark_deleting(self, node: Node, gpuid: str) -> None:
        claimed = self._reclaimer.claimed(node.metadata.name)
        record = self._events.reclaimed if claimed else self._events.released
        await mark_deleting(self._cluster_state.pool, gpuid, record)
