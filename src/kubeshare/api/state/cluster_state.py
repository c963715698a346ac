"""The vGPUs, nodes and pods of the cluster, for a controller."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from kubeshare.api.demands import Demands
from kubeshare.api.quotas.policy import NO_QUOTAS, Quotas
from kubeshare.api.quotas.usage_check import QuotaCheck
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.ledger_builder import (
    allocatable_gpus,
    node_entry,
    runs_unrecorded,
    unclaimed_gpus,
)
from kubeshare.api.state.ledger_cache import LedgerCache, Upkeep
from kubeshare.api.state.vgpu_store import StaleDecisionError, VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_VGPU, LABEL_ZONE
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.demand import LabelScope
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.rows import Place
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import Key

_BY_VGPU = "by vGPU"


class ClusterState:
    """The pool of vGPUs, the nodes with their GPUs, and the pods.

    Args:
        client: patches vGPUs.
        manager: the field manager of those patches.
        vgpus: watches the vGPUs.
        gpunodes: watches the GPUNodes.
        nodes: watches the nodes.
        pods: watches all pods; it gets indexes of the pods that use GPUs.
        quotas: those of each namespace.
        label_scope: the scope of labels that is configured now.
        domain_label: the label of nodes that names their domain, as configured now.
        built: called after the whole ledger has been built.

    Attributes:
        pool: the vGPUs.
        demands: what SharePods and pods ask for, parsed once per generation.
    """

    def __init__(  # noqa: PLR0913 - four kinds of objects
        self,
        client: Client,
        manager: str,
        *,
        vgpus: Reflector[VGPU],
        gpunodes: Reflector[GPUNode],
        nodes: Reflector[core_v1.Node],
        pods: Reflector[core_v1.Pod],
        quotas: Quotas = NO_QUOTAS,
        label_scope: Callable[[], LabelScope] = lambda: "cluster",
        domain_label: Callable[[], str] = lambda: LABEL_ZONE,
        built: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool = VGPUStore(client, vgpus, manager, QuotaCheck(quotas, self.place))
        self.demands = Demands()
        self._pods = pods.store
        self._pods.add_index(_BY_VGPU, _vgpu_of_sharing_pod)
        self._latest_pods = AssumeCache(pods)
        self._ledger = LedgerCache(
            self.pool,
            gpunodes=gpunodes,
            nodes=nodes,
            pods=pods,
            label_scope=label_scope,
            domain_label=domain_label,
            built=built,
        )

    def pod(self, key: Key) -> core_v1.Pod | None:
        """The pod of that name, as last seen or last written by this program, or None."""
        return self._latest_pods.get(key)

    def subscribe_to_pods(self, handler: Callable[[Key], None]) -> None:
        """Call ``handler`` with each key for which :meth:`pod` may return something else.

        It must return at once and not raise.
        """
        self._latest_pods.subscribe(handler)

    def assume_pod(self, pod: core_v1.Pod) -> None:
        """Add a pod that this program has written and the watch may not have delivered."""
        self._latest_pods.assume(pod)

    def is_unobserved(self, key: Key) -> bool:
        """Whether this program has created the pod and the watch has not delivered it."""
        return self._latest_pods.is_unobserved(key)

    def is_own_write(self, change: Change[core_v1.Pod]) -> bool:
        """Whether a change of a pod delivers this program's own write."""
        return self._latest_pods.is_own_write(change)

    def forget_pod(self, pod: core_v1.Pod) -> None:
        """Remove a pod that is gone, though the watch may not have delivered the deletion."""
        self._latest_pods.forget(pod)

    def sharing_pods(self, vgpu: str) -> list[core_v1.Pod]:
        """The pods with the label of the vGPU of this name that have not ended."""
        return [pod for pod in self._pods.by_index(_BY_VGPU, vgpu) if not pod.terminal]

    def has_bound_placeholder(self, vgpu: str) -> bool:
        """Whether a bound placeholder keeps a physical GPU for a vGPU."""
        return self._ledger.has_placeholder(vgpu)

    def runs_unrecorded(self, vgpu: VGPU) -> bool:
        """Whether pods run on the GPU of a vGPU for which no vGPU has a holder."""
        return runs_unrecorded(vgpu, self._ledger.gpunode(vgpu.spec.node_name))

    def whole_gpu_pods(self, node: str) -> list[core_v1.Pod]:
        """The bound pods that use whole GPUs of a node, placeholders included."""
        return list(self._ledger.users_of_whole_gpus(node))

    def offers_gpus(self, node: core_v1.Node) -> bool:
        """Whether a kubelet offers GPUs; one that has just started does not."""
        return allocatable_gpus(node, self._ledger) > 0

    def free_gpus(self, node: core_v1.Node) -> int:
        """GPUs of a node that can become vGPUs; negative if more are claimed than offered."""
        # The entry of this node alone: the ledger would be updated for all nodes.
        free = node_entry(node, self._ledger).free
        return min(unclaimed_gpus(node, self._ledger), len(free))

    def place(self, node: str, model: str, group: str) -> Place:
        """What quotas see of a share of a GPU of that model on a node, for a group."""
        return self.ledger().index(QuotaIndex).place(node, model, group)

    def subscribe_to_growth(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` in :meth:`ledger` when a demand that did not fit before may fit.

        It must return at once and not raise.
        """
        self._ledger.subscribe_to_growth(handler)

    @property
    def growths(self) -> int:
        """How often a demand that did not fit in the ledger before might fit."""
        return self._ledger.growths

    def ledger(self) -> Ledger:
        """The core's ledger of the cluster, up to date; it is the same object each time.

        Callers change it inside its ``what_if`` only, and not across an ``await``.
        """
        return self._ledger.now()

    def ledger_to_place(self, uids: AbstractSet[str]) -> Ledger:
        """The ledger, in which demands of these uids are to be placed.

        Raises:
            StaleDecisionError: one of them holds a share by now.
        """
        ledger = self.ledger()
        if held := ledger.holding(uids):
            raise StaleDecisionError(f"placed meanwhile: {', '.join(sorted(held))}")
        return ledger

    async def prepare_ledger(self, upkeep: Upkeep) -> None:
        """Build the ledger in steps (:meth:`LedgerCache.prepare`)."""
        await self._ledger.prepare(upkeep)

    async def keep_ledger_up(self, upkeep: Upkeep) -> None:
        """Bring the ledger up to date in steps, until cancelled (:meth:`LedgerCache.keep_up`)."""
        await self._ledger.keep_up(upkeep)


def _vgpu_of_sharing_pod(pod: core_v1.Pod) -> list[str]:
    vgpu = pod.metadata.labels.get(LABEL_VGPU, "")
    return [vgpu] if vgpu and not pod.placeholder_of else []
