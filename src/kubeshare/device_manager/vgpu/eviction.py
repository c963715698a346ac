"""Pods that must leave a GPU are evicted through the API, so that their budgets hold.

That is so where the GPU's driver is being upgraded: a pod that shares a GPU does not ask
for one by the name that NVIDIA's operator knows, so the operator does not evict it. And it
is so on a GPU that has failed, where the configuration says ``gpuFailure: evict``. The
holders leave as their node says; the placeholder goes after the last of them.
"""

from typing import Final

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.eviction import evict
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.vgpu.health import problem_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key

RETRY: Final = RequeueAfter(10.0)
"""When a pod is asked to leave again that its budget has kept."""


class Evictions:
    """Has pods leave GPUs.

    Args:
        client: where pods are.
        cluster_state: the pods, as last seen.
        nodes: the nodes, as last seen.
        configuration: says whether pods leave a GPU that has failed.
        events: tells people.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        nodes: Store[Node],
        configuration: DynamicConfiguration,
        events: Events,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._nodes = nodes
        self._configuration = configuration
        self._events = events

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Evict those who share a GPU, if they have to leave it."""
        why = self.reason(vgpu)
        if not why:
            return None
        again = None
        for holder in vgpu.status.holders:
            pod = self._cluster_state.pod(Key(holder.namespace, holder.name))
            if pod is not None and _leaves(pod, holder) and not await self._evict(pod, why):
                again = RETRY
        return again

    def reason(self, vgpu: VGPU) -> str:
        """Why all have to leave; ``""`` where they may stay."""
        node = self._nodes.get(vgpu.spec.node_name)
        if node is not None and node.must_drain:
            return f"the GPU driver of node {vgpu.spec.node_name} is being upgraded"
        problem = problem_of(vgpu)
        if problem is not None and self._configuration.now().gpu_failure == "evict":
            return problem[1]
        return ""

    async def _evict(self, pod: Pod, why: str) -> bool:
        """Evict a pod; whether it leaves."""
        try:
            await evict(self._client, pod)
        except TooManyRequestsError as error:
            self._events.eviction_refused(pod, f"{why}; {error.message}")
            return False
        except (NotFoundError, ConflictError):
            return True  # another pod has its name by now, or none
        self._events.evicted(pod, why)
        return True


def _leaves(pod: Pod, holder: Holder) -> bool:
    """It is the holder's, and not on its way out already."""
    return (
        pod.metadata.uid == holder.pod_uid
        and pod.metadata.deletion_timestamp is None
        and not pod.terminal
    )
