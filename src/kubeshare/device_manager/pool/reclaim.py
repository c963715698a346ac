"""Idle vGPUs give way to pods that wait for a whole GPU.

Such a pod is seen by what kube-scheduler has said of it: unschedulable. It claims GPUs of a
node on which it could run (:func:`kubeshare.core.pool.claimed_gpus`); that node's pool lets idle
vGPUs go until so many GPUs are free, but none of its minimum, and makes no new ones of them
while the pod waits. Who gets a free GPU in the end is for kube-scheduler alone to say.
"""

from collections.abc import Callable
from typing import Final

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.core.pool import PendingPod, claimed_gpus
from kubeshare.device_manager.pool.state import NodePools, terms_of
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw

_WAITS = "waits for a whole GPU"
_ASKED = ("nodeSelector", "affinity", "tolerations")

MAX_PODS: Final = 64
"""Pods that are looked at; the oldest ones, where more wait."""


class Reclaimer:
    """Which GPUs pods that wait for whole ones are to get.

    Args:
        client: for what a pod asks of its node, which the watch does not keep.
        pods: watches all pods.
        nodes: watches the nodes.
        eligibility: the nodes that pods may go to.
        rooms: what these have left besides GPUs.
        pools: the nodes' vGPUs.
        configuration: the pools' policies.
        changed: told the name of each node whose claims have become others.
    """

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        *,
        client: Client,
        pods: Reflector[Pod],
        nodes: Reflector[Node],
        eligibility: Eligibility,
        rooms: NodeResources,
        pools: NodePools,
        configuration: DynamicConfiguration,
        changed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._pods = pods.store
        self._pods.add_index(_WAITS, lambda pod: [_WAITS] if waits_for_whole_gpu(pod) else [])
        self._nodes = nodes.store
        self._eligibility = eligibility
        self._rooms = rooms
        self._pools = pools
        self._configuration = configuration
        self._changed = changed
        self._specs: dict[str, Raw] = {}  # uid of a pod that waits -> its spec
        self._claims: dict[str, int] = {}

    @property
    def needed(self) -> bool:
        """Somebody waits, or has waited a moment ago."""
        return bool(self._claims or self._specs or self._pods.keys_by_index(_WAITS, _WAITS))

    async def reconcile(self, _: Key) -> None:
        """Read what the pods ask for that wait, and tell each node whose claims are new."""
        pods = self._waiting()
        known = {pod.metadata.uid for pod in pods}
        self._specs = {uid: spec for uid, spec in self._specs.items() if uid in known}
        for pod in pods:
            await self._read(pod)
        self._work_out()

    def claimed(self, node: str) -> int | None:
        """How many GPUs of a node pods that wait are to get; None where none could run there.

        That is so as things are now: a pod that has been bound claims none from that moment on.
        """
        if self.needed:
            self._work_out()
        return self._claims.get(node)

    def _waiting(self) -> list[Pod]:
        return sorted(self._pods.by_index(_WAITS, _WAITS), key=_age)[:MAX_PODS]

    def _work_out(self) -> None:
        before, self._claims = self._claims, self._claims_now()
        for node in sorted(before.keys() | self._claims.keys()):
            if before.get(node) != self._claims.get(node):
                self._changed(node)

    def _claims_now(self) -> dict[str, int]:
        waiters = [
            PendingPod(gpus=pod.whole_gpus, nodes=self._nodes_for(pod, spec))
            for pod in self._waiting()
            if (spec := self._specs.get(pod.metadata.uid)) is not None
        ]
        wanted = frozenset().union(*(waiter.nodes for waiter in waiters))
        nodes = [node for name in sorted(wanted) if (node := self._nodes.get(name)) is not None]
        configured = self._configuration.now().pool
        return claimed_gpus(
            waiters,
            {node.metadata.name: self._pools.of(node) for node in nodes},
            {node.metadata.name: terms_of(configured, node) for node in nodes},
        )

    def _nodes_for(self, pod: Pod, spec: Raw) -> frozenset[str]:
        where = self._eligibility.of(spec)
        return self._rooms.filter(where, pod, ignoring=WHOLE_GPU_RESOURCE).nodes

    async def _read(self, pod: Pod) -> None:
        """Read what it asks of its node, once."""
        uid = pod.metadata.uid
        if uid in self._specs:
            return
        try:
            live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFoundError:
            return
        self._specs[uid] = {key: live["spec"].get(key) for key in _ASKED}


def waits_for_whole_gpu(pod: Pod) -> bool:
    """It is not KubeShare's, asks for whole GPUs, and kube-scheduler has found no node for it."""
    if pod.spec.node_name or pod.terminal or pod.metadata.deletion_timestamp or pod.is_managed:
        return False
    bound = pod.condition("PodScheduled")
    unschedulable = bound is not None and (bound.status, bound.reason) == ("False", "Unschedulable")
    return unschedulable and pod.whole_gpus > 0


def _age(pod: Pod) -> tuple[str, Key]:
    return pod.metadata.creation_timestamp or "", pod.metadata.key
