"""Returns idle vGPUs to native pods that wait for a whole GPU.

A pod waits for a whole GPU, which it asks for by ``nvidia.com/gpu`` or by ResourceClaims, when
kube-scheduler has marked it unschedulable. It claims GPUs of
a node on which it could run (:func:`kubeshare.core.pool.claimed_gpus`). That node's pool
deletes idle vGPUs until that many GPUs are free, but keeps its minimum, and warms up none while
the pod waits. kube-scheduler alone decides which pod gets a free GPU in the end.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.core_v1 import Pod
from kubeshare.core.pool import PendingPod, claimed_gpus
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.pool.event_handlers import node_differs
from kubeshare.device_manager.pool.gpu_claims import gpus_by_claims
from kubeshare.device_manager.pool.state import NodePools, settings_of
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw

_WAITING: Final = "waits for a whole GPU"
"""The index of the pods that wait."""
_NODE_SELECTION: Final = ("nodeSelector", "affinity", "tolerations")

_ALL: Final = (Key("", "all"),)
"""The only key: the claims of the whole cluster are computed at once."""

MAX_PODS: Final = 64
"""Waiting pods that are considered: the oldest ones where there are more."""


class Reclaimer:
    """Computes how many GPUs of each node the waiting pods claim.

    Args:
        context: the state and the services that it uses.
        pools: the vGPUs of each node.
    """

    def __init__(self, context: Context, pools: NodePools) -> None:
        informers = context.informers
        self._informers = informers
        self._client = context.client
        self._pods = informers.pods.store
        self._pods.add_index(_WAITING, lambda pod: [_WAITING] if waits_for_whole_gpu(pod) else [])
        self._nodes = informers.nodes.store
        self._eligibility = Eligibility(informers.nodes)
        self._node_resources = NodeResources(
            informers.nodes, informers.pods, informers.cluster_state
        )
        self._pools = pools
        self._configuration = context.configuration
        self._handlers: list[Callable[[str], None]] = []
        self._waiters: dict[str, _Waiter] = {}  # by the uid of the pod
        self._gpunodes = informers.gpunodes.store
        self._claims: dict[str, int] = {}

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("yields", self.reconcile)
        controller.watch(
            informers.pods, lambda pod: _ALL if waits_for_whole_gpu(pod) or self.needed else ()
        )
        controller.watch(informers.vgpus, lambda _: _ALL, when=lambda _: self.needed)
        controller.watch(informers.nodes, lambda _: _ALL if self.needed else (), node_differs)
        informers.configuration.subscribe(lambda: controller.add(*_ALL))
        program.add_controller(controller)
        add_resync(program, controller, lambda: _ALL)

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call a function with the name of each node whose claims change."""
        self._handlers.append(handler)

    @property
    def needed(self) -> bool:
        """Whether a pod waits, or did so at the last computation."""
        return bool(self._claims or self._waiters or self._pods.keys_by_index(_WAITING, _WAITING))

    async def reconcile(self, _: Key) -> None:
        """Read the node selection of new waiting pods, and update the claims."""
        known = {pod.metadata.uid for pod in self._pods.by_index(_WAITING, _WAITING)}
        self._waiters = {uid: found for uid, found in self._waiters.items() if uid in known}
        for pod in self._waiting():
            await self._read(pod)
        self._update_claims()

    def claimed(self, node: str) -> int | None:
        """How many GPUs of a node the waiting pods claim; None where none of them could run.

        The claims are computed anew, so a pod that has been bound no longer counts.
        """
        if self.needed:
            self._update_claims()
        return self._claims.get(node)

    def _waiting(self) -> list[Pod]:
        """The pods to consider, the oldest first; those whose claims are for no GPU are not."""
        pods = [
            pod
            for pod in self._pods.by_index(_WAITING, _WAITING)
            if (known := self._waiters.get(pod.metadata.uid)) is None or known.gpus
        ]
        return sorted(pods, key=_age)[:MAX_PODS]

    def _update_claims(self) -> None:
        before, self._claims = self._claims, self._compute_claims()
        for node in sorted(before.keys() | self._claims.keys()):
            if before.get(node) != self._claims.get(node):
                for handler in self._handlers:
                    handler(node)

    def _compute_claims(self) -> dict[str, int]:
        waiters = [
            PendingPod(gpus=known.gpus, nodes=self._nodes_for(pod, known))
            for pod in self._waiting()
            if (known := self._waiters.get(pod.metadata.uid)) is not None
        ]
        candidates = frozenset().union(*(waiter.nodes for waiter in waiters))
        nodes = [node for name in sorted(candidates) if (node := self._nodes.get(name)) is not None]
        configured = self._configuration.now().pool
        return claimed_gpus(
            waiters,
            {node.metadata.name: self._pools.of(node) for node in nodes},
            {node.metadata.name: settings_of(configured, node) for node in nodes},
        )

    def _nodes_for(self, pod: Pod, waiter: "_Waiter") -> frozenset[str]:
        eligible = self._eligibility.of(waiter.spec)
        nodes = self._node_resources.filter(eligible, pod, ignoring=WHOLE_GPU_RESOURCE).nodes
        return frozenset(filter(self._offers_claims, nodes)) if waiter.by_claims else nodes

    def _offers_claims(self, name: str) -> bool:
        """Whether a DRA driver offers the GPUs of a node."""
        node, found = self._nodes.get(name), self._gpunodes.get(name)
        return node is not None and found is not None and found.spec.dra_count > node.whole_gpus

    async def _read(self, pod: Pod) -> None:
        """Read once how a pod selects nodes, and what its claims are for.

        The watch does not keep that.
        """
        uid = pod.metadata.uid
        if uid in self._waiters:
            return
        try:
            live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFoundError:
            return
        claimed = 0 if pod.whole_gpus else await gpus_by_claims(self._client, live)
        if claimed is None:
            return  # the status of the pod changes when its claims are made
        self._waiters[uid] = _Waiter(
            gpus=pod.whole_gpus or claimed,
            by_claims=not pod.whole_gpus,
            spec={key: live["spec"].get(key) for key in _NODE_SELECTION},
        )


class _Waiter(Struct, frozen=True, kw_only=True):
    """What a waiting pod asks for: GPUs, whether by claims, and the fields that select nodes."""

    gpus: int
    by_claims: bool
    spec: Raw


def waits_for_whole_gpu(pod: Pod) -> bool:
    """A native pod may ask for whole GPUs, and kube-scheduler has marked it unschedulable.

    Its claims may be for other devices.
    """
    if pod.spec.node_name or pod.terminal or pod.metadata.deletion_timestamp or pod.is_managed:
        return False
    bound = pod.condition("PodScheduled")
    unschedulable = bound is not None and (bound.status, bound.reason) == ("False", "Unschedulable")
    return unschedulable and (pod.whole_gpus > 0 or bool(pod.spec.resource_claims))


def _age(pod: Pod) -> tuple[str, Key]:
    return pod.metadata.creation_timestamp or "", pod.metadata.key
