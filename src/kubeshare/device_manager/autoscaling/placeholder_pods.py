"""Show a cluster autoscaler that GPUs are missing.

An autoscaler adds nodes for pods that cannot be scheduled. A SharePod that waits has no pod
yet, and a plain pod is behind its gate; so for each of those that a new node would help, up to
the number that is configured, pods are made that ask for a GPU on any node to which it could
go. They have no priority, preempt nobody and do nothing: they go as soon as who waits has its
part, or does not wait any more, or one of them has found a node whose GPUs are known; then
Sched does the rest.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubeshare.api.affinity_terms import forbid_nodes
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import (
    ANNOTATION_SAFE_TO_EVICT,
    LABEL_REQUESTER_UID,
    LABEL_ROLE,
    MANAGER_DEVICES,
    MISSING_PREFIX,
    MISSING_PRIORITY_CLASS,
    NAMESPACE,
    ROLE_MISSING,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.device_manager.autoscaling.unmet_demand import PendingRequester, UnmetDemand
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.placeholder.pods import idle_pod
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key

PENDING_SECONDS: Final = 5.0
"""Seconds that somebody waits before a pod is made for it, and again after that was removed."""

MAX_EXCLUDED_NODES: Final = 64
"""How many nodes with free GPUs a pod is kept off."""

_ROLE = "shows that a GPU is missing"
_PASSED_ON: Final = ("nodeSelector", "tolerations", "affinity")


class AutoscalerPods:
    """Makes and removes the pods that show what is missing.

    Args:
        client: where they are.
        pods: watches all pods.
        cluster_state: the cluster's GPUs.
        short: who waits for a GPU that no node has.
        configuration: how many pods at most.
        image: any that has ``sh`` and ``sleep``.
        events: tells people.
    """

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        *,
        client: Client,
        pods: Reflector[Pod],
        cluster_state: ClusterState,
        short: UnmetDemand,
        configuration: DynamicConfiguration,
        image: str,
        events: Events,
    ) -> None:
        self._client = client
        self._pods = pods.store
        self._pods.add_index(_ROLE, lambda pod: [_ROLE] if is_autoscaler_pod(pod) else [])
        self._cluster_state = cluster_state
        self._short = short
        self._configuration = configuration
        self._image = image
        self._events = events
        self._not_before: dict[str, float] = {}  # uid of one that waits -> when

    @property
    def needed(self) -> bool:
        """It is configured, or there are pods of former times."""
        return self._most > 0 or bool(self._pods.keys_by_index(_ROLE, _ROLE))

    async def reconcile(self, _: Key) -> RequeueAfter | None:
        """Have the right pods, and no other."""
        now = asyncio.get_running_loop().time()
        waiting = await self._short.waiting() if self._most else []
        self._not_before = {
            short.demand.uid: self._not_before.get(short.demand.uid, now + PENDING_SECONDS)
            for short in waiting
        }
        wanted = self._wanted([short for short in waiting if self._left(short, now) <= 0])
        await self._remove(wanted.keys())
        for name, short in wanted.items():
            await self._make(name, short)
        left = [left for short in waiting if (left := self._left(short, now)) > 0]
        return RequeueAfter(min(left)) if left else None

    def _wanted(self, waiting: Sequence[PendingRequester]) -> dict[str, PendingRequester]:
        """The names of the pods that are to be there -> for whom."""
        wanted: dict[str, PendingRequester] = {}
        for short in self._short.helped(waiting) if waiting else ():
            uid, count = short.demand.uid, short.demand.count
            if len(wanted) + count <= self._most:
                names = [f"{MISSING_PREFIX}{uid}-{number}" for number in range(count)]
                wanted |= dict.fromkeys(names, short)
            if len(wanted) == self._most:
                break
        return wanted

    def _left(self, short: PendingRequester, now: float) -> float:
        """Seconds that one is still to wait before it is shown."""
        return self._not_before[short.demand.uid] - now

    @property
    def _most(self) -> int:
        return self._configuration.now().autoscaler.placeholders

    def _shown(self) -> tuple[Pod, ...]:
        return self._pods.by_index(_ROLE, _ROLE)

    async def _remove(self, wanted: Iterable[str]) -> None:
        keep = set(wanted)
        for pod in self._shown():
            known = self._cluster_state.ledger().nodes.get(pod.spec.node_name)
            found_its_node = known is not None and known.total > 0
            if pod.metadata.deletion_timestamp or (
                pod.metadata.name in keep and not found_its_node
            ):
                continue
            uid = pod.metadata.labels.get(LABEL_REQUESTER_UID, "")
            self._not_before[uid] = asyncio.get_running_loop().time() + PENDING_SECONDS
            try:
                await self._client.delete(
                    PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
                )
            except NotFoundError:
                continue

    async def _make(self, name: str, short: PendingRequester) -> None:
        if any(pod.metadata.name == name for pod in self._shown()):
            return
        nodes = self._cluster_state.ledger().nodes.values()
        free = sorted(node.name for node in nodes if node.free)[:MAX_EXCLUDED_NODES]
        made = manifest(name, short, self._image, free)
        try:
            await self._client.create(PODS, made, field_manager=MANAGER_DEVICES)
        except AlreadyExistsError:
            return
        self._events.gpu_missing(short.reference, name)


def manifest(name: str, short: PendingRequester, image: str, free: Sequence[str]) -> dict[str, Any]:
    """A pod that asks for a GPU wherever one that waits could go.

    Args:
        name: its own.
        short: who waits.
        image: any that has ``sh`` and ``sleep``.
        free: nodes with GPUs that are free, and not enough: it takes none of those.
    """
    labels = {LABEL_ROLE: ROLE_MISSING, LABEL_REQUESTER_UID: short.demand.uid}
    pod = idle_pod(name, labels, MISSING_PRIORITY_CLASS, image)
    pod["metadata"]["annotations"] = {ANNOTATION_SAFE_TO_EVICT: "true"}
    passed_on = {field: short.spec[field] for field in _PASSED_ON if short.spec.get(field)}
    if free:
        passed_on["affinity"] = forbid_nodes(passed_on.get("affinity") or {}, free)
    return pod | {"spec": pod["spec"] | passed_on}


def is_autoscaler_pod(pod: Pod) -> bool:
    """It is one of these pods."""
    return pod.is_managed and pod.metadata.labels[LABEL_ROLE] == ROLE_MISSING
