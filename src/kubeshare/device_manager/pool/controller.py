"""The steps of one node's pool: which idle vGPUs go, and how many are made ahead of demand."""

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Node
from kubeshare.core.pool import Plan, plan
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.pool.reclaim import Reclaimer
from kubeshare.device_manager.pool.state import NodePools, terms_of, unknown_policy
from kubeshare.device_manager.pool.warmup import warm_up
from kubeshare.device_manager.vgpu.idle_deletion import mark_deleting
from kubeshare.kube.cache.store import Store
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key


class PoolController:
    """Brings a node's pool to what its policy says.

    Args:
        nodes: the nodes.
        cluster_state: the cluster's GPUs and pods.
        pools: the nodes' vGPUs.
        configuration: the policies.
        reclaimer: what pods are to get that wait for whole GPUs.
        events: tells people.
        metrics: counts.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        *,
        nodes: Store[Node],
        cluster_state: ClusterState,
        pools: NodePools,
        configuration: DynamicConfiguration,
        reclaimer: Reclaimer,
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._nodes = nodes
        self._cluster_state = cluster_state
        self._pools = pools
        self._configuration = configuration
        self._reclaimer = reclaimer
        self._events = events
        self._metrics = metrics

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one node."""
        node = self._nodes.by_key(key)
        if node is None:
            return None  # its vGPUs go with it
        await self._cluster_state.pool.settle()
        if wrong := unknown_policy(node):
            self._events.unknown_policy(node, wrong)
        what = self._plan(node)
        for gpuid in what.release:
            await self._let_go(node, gpuid)
        made = await warm_up(self._cluster_state, node.metadata.name, what.make)
        self._metrics.warmed.inc(len(made))
        return None if what.again is None else RequeueAfter(what.again)

    def _plan(self, node: Node) -> Plan:
        terms = terms_of(self._configuration.now().pool, node)
        return plan(self._pools.of(node), terms, self._reclaimer.claimed(node.metadata.name))

    async def _let_go(self, node: Node, gpuid: str) -> None:
        waited_for = self._reclaimer.claimed(node.metadata.name)
        reported = self._events.reclaimed if waited_for else self._events.released
        await mark_deleting(self._cluster_state.pool, gpuid, reported)
