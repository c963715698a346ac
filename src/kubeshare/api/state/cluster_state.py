"""What a controller knows of the cluster's GPUs: the pool, and what is around it."""

from collections.abc import Callable

from kubeshare.api.demands import Demands
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.ledger_builder import allocatable_gpus, node_entry, unclaimed_gpus
from kubeshare.api.state.ledger_cache import LedgerCache
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_VGPU
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import Key

_SHARES = "shares a vGPU"


class ClusterState:
    """The pool of vGPUs, the nodes with their GPUs, and the pods.

    Args:
        client: where vGPUs are changed.
        manager: recorded as who changed them.
        vgpus: watches them.
        gpunodes: watches what the node agents found.
        nodes: watches the nodes.
        pods: watches all pods; it gets indexes of those that have to do with GPUs.
        built: called after the ledger has been made whole.

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
        built: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool = VGPUStore(client, vgpus, manager)
        self.demands = Demands()
        self._pods = pods.store
        self._pods.add_index(_SHARES, _shared_by)
        self._latest_pods = AssumeCache(pods)
        self._ledger = LedgerCache(
            self.pool, gpunodes=gpunodes, nodes=nodes, pods=pods, built=built
        )

    def pod(self, key: Key) -> core_v1.Pod | None:
        """The pod of that name, as last seen or last made by this program, or None."""
        return self._latest_pods.get(key)

    def assume_pod(self, pod: core_v1.Pod) -> None:
        """This program has made a pod, which the watch may not have told yet."""
        self._latest_pods.assume(pod)

    def is_unobserved(self, key: Key) -> bool:
        """This program has made the pod of that name, and no watch has told of it yet."""
        return self._latest_pods.is_unobserved(key)

    def is_own_write(self, change: Change[core_v1.Pod]) -> bool:
        """A change of a pod is what this program has made, and was answered."""
        return self._latest_pods.is_own_write(change)

    def forget_pod(self, pod: core_v1.Pod) -> None:
        """The API server has that pod no more, which the watch may not have told yet."""
        known = self.pod(pod.metadata.key)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            self._latest_pods.forget(pod.metadata.key)

    def sharing_pods(self, gpuid: str) -> list[core_v1.Pod]:
        """The pods that say of themselves that they share a vGPU and may still run."""
        return [pod for pod in self._pods.by_index(_SHARES, gpuid) if not pod.terminal]

    def has_bound_placeholder(self, gpuid: str) -> bool:
        """A placeholder of that vGPU is bound, so a physical GPU is kept for it."""
        return self._ledger.has_placeholder(gpuid)

    def offers_gpus(self, node: core_v1.Node) -> bool:
        """Its kubelet offers GPUs, as one that has just started does not."""
        return allocatable_gpus(node, self._ledger) > 0

    def free_gpus(self, node: core_v1.Node) -> int:
        """GPUs of a node that can be made vGPUs; below 0 where more are promised than there are."""
        # Its entry alone: the ledger would be brought up to date for all nodes.
        free = node_entry(node, self._ledger).free
        return min(unclaimed_gpus(node, self._ledger), len(free))

    def ledger(self) -> Ledger:
        """The core's ledger of all this: the same one each time, brought up to date.

        Whoever asks may try things in its ``what_if`` only, and not across an ``await``.
        """
        return self._ledger.now()


def _shared_by(pod: core_v1.Pod) -> list[str]:
    gpuid = pod.metadata.labels.get(LABEL_VGPU, "")
    return [gpuid] if gpuid and not pod.placeholder_of else []
