"""Plain pods ask: gated until their part of a GPU is there, then told in one write.

While a pod is gated its affinity can be tightened, and everything may be decided again;
once the gate is gone nothing can. So the gate goes last: when the parts are reserved and
their vGPUs are there. The condition is written before that, since afterwards the pod is
kube-scheduler's, and whoever is killed in between finds it gated and goes on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from kubeshare.api import pods
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.gang_members import GANG, gang_index, gang_value
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import (
    ANNOTATION_GPUIDS,
    ANNOTATION_NODE,
    CONDITION_POD_SCHEDULED,
    GATE,
    LABEL_ROLE,
    LABEL_VGPU,
    NAMESPACE,
    ROLE_POD,
    placeholder_name,
)
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, ExcludedNode
from kubeshare.api.vgpu_readiness import Blocker, blocker, failure
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.pod import PREFIX
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import PODS, Raw
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.requesters.object import ObjectKind, RequesterObject
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.scheduler.volume_binding import VolumeBinder

KIND: Final = PODS.kind


class GatedPods(ObjectKind):
    """The plain pods that are not bound yet.

    Args:
        client: where they are.
        known: those that there are; told what is written.
        status: writes their condition.
        bound: all pods: those of a gang that are bound count for it.
        cluster_state: the vGPUs and their placeholders.
        rooms: what nodes have left.
        volumes: which nodes reach the pods' volumes.
        models: the names of the cluster's GPU models.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        known: AssumeCache[Raw],
        status: ScheduledCondition,
        *,
        bound: Store[Pod],
        cluster_state: ClusterState,
        rooms: NodeResources,
        volumes: VolumeBinder,
        models: Callable[[], Collection[str]],
    ) -> None:
        super().__init__(client, known, status)
        self.cluster_state = cluster_state
        self.rooms = rooms
        self.volumes = volumes
        self.models = models
        self.cramped: set[RequesterKey] = set()
        self._bound = bound
        known.add_index(GANG, gang_index)
        bound.add_index(GANG, _gang_of_bound)

    def get(self, key: Key) -> "_PodRequester | None":
        """The pod of that name, as last seen or written."""
        raw = self.known.get(key)
        if raw is None:
            self.cramped.discard(RequesterKey(KIND, key))
            return None
        return _PodRequester(self, raw)

    def in_gang(self, namespace: str, name: str) -> Iterable["_PodRequester"]:
        """The plain pods that name a gang, bound ones too."""
        key = gang_value(Key(namespace, name))
        for raw in self.known.by_index(GANG, key):
            yield _PodRequester(self, raw)
        for pod in self._bound.by_index(GANG, key):
            yield _PodRequester(self, msgspec.to_builtins(pod))

    def short_of_resources(self, _: object) -> Iterable[RequesterKey]:
        """Those for which some node had no room when they were last looked at."""
        return tuple(self.cramped)

    @staticmethod
    def keys(raw: Raw) -> list[RequesterKey]:
        """The key of a pod that was seen."""
        metadata = raw["metadata"]
        return [RequesterKey(KIND, Key(metadata["namespace"], metadata["name"]))]


class _PodRequester(RequesterObject[GatedPods, Pod]):
    """One plain pod as it was read (see :class:`kubeshare.scheduler.requesters.base.Requester`)."""

    resource = PODS

    @cached_property
    def view(self) -> Pod:
        return pods.view(self.raw)

    @property
    def finished(self) -> bool:
        return self.deleting or self.view.terminal

    @property
    def decided(self) -> bool:
        return not self.view.gated

    @property
    def gpuids(self) -> tuple[str, ...]:
        return () if self.view.gated else self.view.gpuids

    @property
    def excluded(self) -> Sequence[ExcludedNode]:
        return ()

    @property
    def not_ready(self) -> str:
        others = [gate.name for gate in self.view.spec.scheduling_gates if gate.name != GATE]
        if others:
            return f"it waits behind {', '.join(others)}, which others remove"
        return self.kind.volumes.not_ready(self.uid)

    async def prepare(self) -> RequeueAfter | None:
        return await self.kind.volumes.refresh(self.view.metadata, self.pod_spec)

    def filter(self, where: Eligible) -> Eligible:
        where = self.kind.volumes.filter(where, self.uid)
        within = self.kind.rooms.filter(where, self.view)
        if within.nodes == where.nodes:
            self.kind.cramped.discard(self.key)
        else:
            self.kind.cramped.add(self.key)
        return within

    def filter_for_gang(self, where: Eligible, others: Iterable[tuple[str, Requester]]) -> Eligible:
        pods = ((node, each.view) for node, each in others if isinstance(each, _PodRequester))
        return self.kind.rooms.filter(where, self.view, alongside=pods)

    def demand(self) -> Demand | None:
        asked = self.kind.cluster_state.demands.of_pod(self.raw, self.kind.models())
        if asked is None and self.view.gated:
            words = "is missing: the pod waits for a part of a GPU and does not say how much"
            raise InvalidValueError(PREFIX + "request", words)
        return asked

    def blocker(self, vgpus: Sequence[VGPU]) -> Blocker | None:
        for vgpu in vgpus:
            key = Key(NAMESPACE, placeholder_name(vgpu.metadata.name))
            if found := blocker(vgpu, self.kind.cluster_state.pod(key)) or failure(vgpu):
                return found
        return None

    async def bind(self, node: str, gpuids: Sequence[str]) -> "_PodRequester":
        place = f"vGPU {', '.join(gpuids)} on node {node}"
        told = await self._condition("True", Reason.BOUND, place) or self
        return await told.patched(_decision(told.raw, told.view, node, gpuids))

    async def confirm(self) -> None:
        """Nothing: the condition was written while the pod was still gated."""

    async def set_condition(self, reason: Reason, message: str) -> bool:
        return await self._condition("False", reason, message) is not None

    async def _condition(self, status: str, reason: Reason, message: str) -> "_PodRequester | None":
        condition = Condition(
            type=CONDITION_POD_SCHEDULED, status=status, reason=reason, message=message
        )
        answer = await self.kind.status.write(
            PODS, self.view.metadata, self.view.status.conditions, condition
        )
        return None if answer is None else self._known_as(answer)


def _decision(raw: Raw, seen: Pod, node: str, gpuids: Sequence[str]) -> list[dict[str, Any]]:
    """The one write that ends the wait, of a pod in the very state that was read."""
    metadata: Mapping[str, Any] = raw["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations |= {ANNOTATION_GPUIDS: ",".join(gpuids), ANNOTATION_NODE: node}
    labels = {**(metadata.get("labels") or {}), LABEL_VGPU: gpuids[0]}
    gate = [each.name for each in seen.spec.scheduling_gates].index(GATE)
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {
            "op": "add",
            "path": "/spec/affinity",
            "value": require_node(raw["spec"].get("affinity") or {}, node),
        },
        {"op": "remove", "path": f"/spec/schedulingGates/{gate}"},
    ]


def _gang_of_bound(pod: Pod) -> list[str]:
    """The gang of a plain pod that is bound and has not failed, for an index."""
    metadata, failed = pod.metadata, pod.status.phase == "Failed"
    if metadata.labels.get(LABEL_ROLE) != ROLE_POD or not pod.spec.node_name or failed:
        return []
    name = gang_named({"metadata": {"labels": metadata.labels}})
    return [gang_value(Key(metadata.namespace, name))] if name else []
