"""Evicts pods that must leave their GPU, within their disruption budgets.

Pods leave a GPU in two cases:

* the GPU driver of the node is being upgraded. NVIDIA's operator evicts only pods that ask
  for a GPU by a resource name that it knows, so it does not evict pods that share one;
* the GPU has failed or lost its placeholder, and the configuration says ``gpuFailure: evict``.

The node releases the holders when the containers have stopped; the placeholder goes after
the last holder.
"""

from typing import Final

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.eviction import evict
from kubeshare.api.holders import one_of_each_demand
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.vgpu.health import problem_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key

_WORKING: Final = (Reason.UNRECORDED_PODS, Reason.DRIVER_TOO_OLD)
"""Why a GPU takes no further pods though it works for those that have a holder."""

RETRY: Final = RequeueAfter(10.0)
"""When an eviction that a disruption budget refused is retried."""


class Evictions:
    """Evicts pods from GPUs.

    Args:
        client: evicts the pods.
        cluster_state: the pods.
        nodes: the nodes.
        configuration: whether pods leave a failed GPU.
        events: records the evictions.
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
        """Evict the pods that share a vGPU if they must leave it."""
        why = self.reason(vgpu)
        if not why:
            return None
        again = None
        for holder in one_of_each_demand(vgpu):
            pod = self._cluster_state.pod(Key(holder.namespace, holder.name))
            if pod is not None and _is_evictable(pod, holder) and not await self._evict(pod, why):
                again = RETRY
        return again

    def reason(self, vgpu: VGPU) -> str:
        """Why all pods must leave a vGPU; ``""`` where they may stay."""
        node = self._nodes.get(vgpu.spec.node_name)
        if node is not None and node.must_drain:
            return f"the GPU driver of node {vgpu.spec.node_name} is being upgraded"
        problem = problem_of(vgpu)
        if problem is None or problem[0] in _WORKING:
            return ""
        if self._configuration.now().gpu_failure == "evict":
            return problem[1]
        return ""

    async def _evict(self, pod: Pod, why: str) -> bool:
        """Evict a pod; False when its disruption budget refuses."""
        try:
            await evict(self._client, pod)
        except TooManyRequestsError as error:
            self._events.eviction_refused(pod, f"{why}; {error.message}")
            return False
        except (NotFoundError, ConflictError):
            return True  # the pod has gone; another one may have its name
        self._events.evicted(pod, why)
        return True


def _is_evictable(pod: Pod, holder: Holder) -> bool:
    """It is the holder's pod, and neither ended nor being deleted."""
    return (
        pod.metadata.uid == holder.pod_uid
        and pod.metadata.deletion_timestamp is None
        and not pod.terminal
    )
