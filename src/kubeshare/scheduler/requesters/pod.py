"""Plain pods as requesters: gated until their vGPUs are ready.

While a pod is gated its affinity can be tightened and it can be scheduled again; once the gate
is removed nothing can be undone. So the gate is removed last, when the shares are reserved and
the vGPUs are ready. The condition is written before that, since afterwards the pod belongs to
kube-scheduler; a program that is killed in between finds the pod gated and resumes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import msgspec

from kubeshare.api import gpuid_list, pod_state
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.gang_members import GANG, WAITING, gang_index, gang_value
from kubeshare.api.holder_codec import placed_gpus
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates, NodeResources
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.stripping import is_stripped
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
from kubeshare.api.types.v1 import VGPU, ExcludedNode, GPUDevice
from kubeshare.api.vgpu_readiness import Blocker, blocker, failure
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import families
from kubeshare.dialects.pod import PREFIX
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.dialects.write_back import gpu_annotations, gpuid_annotation
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import PODS, Raw
from kubeshare.scheduler.requesters.base import RequesterKey
from kubeshare.scheduler.requesters.object import ObjectKind, RequesterObject
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.scheduler.volume_binding import VolumeBinder

KIND: Final = PODS.kind


class GatedPods(ObjectKind):
    """The plain pods that are not bound to a node.

    Args:
        client: reads and patches them.
        known: the gated pods, with this program's own writes.
        status: writes their condition.
        max_priority: the highest priority that demands of a namespace may have.
        bound: all pods: bound members of a gang count for it.
        cluster_state: the vGPUs, their placeholders, and parsed demands.
        node_resources: the resources that nodes have left.
        volumes: the volumes of the pods.
        models: returns the GPU models of the cluster.
        unit: returns the bytes of a unit of ``aliyun.com/gpu-mem``.
        gpu_of: the GPU of a vGPU on its node; None if it is unknown.
        wall_clock: gives the present, aware.
        by_extender: whether the extender places the pods of a manifest family.

    Attributes:
        lacking_resources: pods for which some node lacked resources when they were last scheduled.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        known: AssumeCache[Raw],
        status: ScheduledCondition,
        max_priority: Callable[[str], int],
        *,
        bound: Store[Pod],
        cluster_state: ClusterState,
        node_resources: NodeResources,
        volumes: VolumeBinder,
        models: Callable[[], Collection[str]],
        unit: Callable[[], int],
        gpu_of: Callable[[VGPU], GPUDevice | None],
        wall_clock: Callable[[], datetime],
        by_extender: Callable[[str], bool],
    ) -> None:
        super().__init__(client, known, status, max_priority)
        self.cluster_state = cluster_state
        self.node_resources = node_resources
        self.volumes = volumes
        self.models = models
        self.unit = unit
        self.gpu_of = gpu_of
        self.wall_clock = wall_clock
        self.by_extender = by_extender
        self.lacking_resources: set[RequesterKey] = set()
        self._bound = bound
        known.add_index(GANG, gang_index)
        known.add_index(WAITING, self._waits_in_gang)
        bound.add_index(GANG, _gang_of_bound)

    def get(self, key: Key) -> "_PodRequester | None":
        """The pod of that name, as last seen or last written by this program."""
        raw = self.known.get(key)
        if raw is None:
            self.lacking_resources.discard(RequesterKey(KIND, key))
            return None
        return _PodRequester(self, raw)

    def in_gang(self, namespace: str, name: str) -> Iterable["_PodRequester"]:
        """The plain pods that name a gang, including bound ones."""
        key = gang_value(Key(namespace, name))
        for raw in self.known.each_by_index(GANG, key):
            yield _PodRequester(self, raw)
        for pod in self._bound.by_index(GANG, key):
            yield _PodRequester(self, msgspec.to_builtins(pod))

    def waiting_in_gang(self, namespace: str, name: str) -> int:
        """How many plain pods that name a gang are not bound."""
        return self.known.count_by_index(WAITING, gang_value(Key(namespace, name)))

    def _waits_in_gang(self, raw: Raw) -> list[str]:
        requester = _PodRequester(self, raw)
        named = gang_index(raw)
        return named if named and not requester.decided and not requester.finished else []

    def short_of_resources(self, _: object) -> Iterable[RequesterKey]:
        """The pods that may fit once a node has more CPU, memory or pods left."""
        return tuple(self.lacking_resources)

    @staticmethod
    def keys(raw: Raw) -> list[RequesterKey]:
        """The key of a pod."""
        metadata = raw["metadata"]
        return [RequesterKey(KIND, Key(metadata["namespace"], metadata["name"]))]


class _PodRequester(RequesterObject[GatedPods, Pod]):
    """One plain pod as it was read; see :class:`kubeshare.scheduler.requesters.base.Requester`."""

    resource = PODS

    @cached_property
    def view(self) -> Pod:
        return pod_state.view(self.raw)

    @property
    def finished(self) -> bool:
        return self.deleting or self.view.terminal

    @property
    def decided(self) -> bool:
        return not self.view.gated

    @property
    def is_for_extender(self) -> bool:
        # The members of a gang are placed together, which kube-scheduler does not do.
        family = families.family_of(self.pod_spec)
        return (
            family is not None
            and self.kind.by_extender(family.name)
            and self.standing().gang is None
        )

    @property
    def may_be_binding(self) -> bool:
        return pod_state.may_be_binding(self.view)

    async def leave_to_extender(self) -> None:
        version = self.view.metadata.resource_version
        same = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        await self.patched([same, _remove_gate(self.view)])

    def names(self, vgpu: VGPU) -> bool:
        return not self.view.gated and pod_state.names(self.view, vgpu)

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

    def filter(self, eligible: Eligible) -> Eligible:
        reachable = self.kind.volumes.filter(eligible, self.uid)
        roomy = self.kind.node_resources.filter(reachable, self.view)
        if roomy.nodes == reachable.nodes:
            self.kind.lacking_resources.discard(self.key)
        else:
            self.kind.lacking_resources.add(self.key)
        return roomy

    def filter_beside(self, eligible: Eligible, mates: Mates) -> Eligible:
        roomy = self.kind.node_resources.filter(eligible, self.view, mates=mates)
        if roomy.nodes != eligible.nodes:
            self.kind.lacking_resources.add(self.key)
        return roomy

    def place_beside(self, node: str, mates: Mates) -> None:
        mates.place(node, self.view)

    def demand(self) -> Demand | None:
        demand = self.kind.cluster_state.demands.of_pod(
            self.raw, self.kind.models(), unit=self.kind.unit()
        )
        if demand is None and self.view.gated:
            words = "is missing: the pod waits for a share of a GPU and does not say how much"
            raise InvalidValueError(PREFIX + "request", words)
        return demand

    def blocker(self, vgpus: Sequence[VGPU]) -> Blocker | None:
        for vgpu in vgpus:
            key = Key(NAMESPACE, placeholder_name(vgpu.metadata.name))
            if found := blocker(vgpu, self.kind.cluster_state.pod(key)) or failure(vgpu):
                return found
        return None

    async def bind(self, vgpus: Sequence[VGPU]) -> "_PodRequester":
        names = ", ".join(vgpu.gpuid for vgpu in vgpus)
        decision = f"vGPU {names} on node {vgpus[0].spec.node_name}"
        scheduled = await self._write("True", Reason.BOUND, decision) or self
        if not scheduled.view.gated:
            raise ConflictError(f"{self.key}: another leader has bound it")
        if is_stripped(scheduled.raw):
            scheduled = await self._whole()
        annotations = scheduled.annotations_on(vgpus)
        return await scheduled.patched(_decision(scheduled.raw, scheduled.view, vgpus, annotations))

    async def _whole(self) -> "_PodRequester":
        """The pod with what the cache lacks: its binding writes all labels and annotations.

        Raises:
            ConflictError: it was changed since it was read, or is gone.
        """
        live = await self.refresh()
        version = self.view.metadata.resource_version
        if live is None or live.view.metadata.resource_version != version:
            raise ConflictError(f"{self.key} has changed since it was read")
        return live

    def annotations_on(self, vgpus: Sequence[VGPU]) -> dict[str, str]:
        """All annotations of the placed pod, with what the published versions write into it."""
        annotations = self.view.metadata.annotations
        family = families.family_of(self.pod_spec)
        held = self.kind.cluster_state.pool.held_by(self.uid)
        gpus = placed_gpus(held, self.uid, self.kind.gpu_of)
        written = gpu_annotations(self.view.metadata.labels, gpus)
        if family is not None:
            # Those that the author wrote say nothing true.
            annotations = {
                key: value for key, value in annotations.items() if not family.is_annotation(key)
            }
            placed = families.Placed(
                spec=self.pod_spec,
                gpus=gpus,
                node=vgpus[0].spec.node_name,
                unit=self.kind.unit(),
                now=self.kind.wall_clock(),
            )
            written |= family.annotations_of(placed)
        gpuids = [vgpu.gpuid for vgpu in vgpus]
        if not annotations.get(PREFIX + "id"):
            written |= gpuid_annotation(annotations, gpuids)
        decided = {
            ANNOTATION_GPUIDS: gpuid_list.format_list(gpuids),
            ANNOTATION_NODE: vgpus[0].spec.node_name,
        }
        return annotations | decided | written

    async def confirm(self) -> None:
        """Do nothing: the condition was written while the pod was gated."""

    def shows(self, reason: Reason) -> bool:
        known = self.view.condition(CONDITION_POD_SCHEDULED)
        return known is not None and (known.status, known.reason) == ("False", reason)

    async def set_condition(self, reason: Reason, message: str) -> bool:
        return await self._write("False", reason, message) is not None

    async def _write(self, status: str, reason: Reason, message: str) -> "_PodRequester | None":
        condition = Condition(
            type=CONDITION_POD_SCHEDULED, status=status, reason=reason, message=message
        )
        answer = await self.kind.status.write(
            PODS, self.view.metadata, self.view.status.conditions, condition
        )
        return None if answer is None else self._assume(answer)


def _decision(
    raw: Raw, pod: Pod, vgpus: Sequence[VGPU], annotations: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The patch that ungates a pod, valid only for the resourceVersion that was read."""
    metadata: Mapping[str, Any] = raw["metadata"]
    node = vgpus[0].spec.node_name
    # A GPUID may be no valid value of a label: the label has the name of the object.
    labels = {**(metadata.get("labels") or {}), LABEL_VGPU: vgpus[0].metadata.name}
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {
            "op": "add",
            "path": "/spec/affinity",
            "value": require_node(raw["spec"].get("affinity") or {}, node),
        },
        _remove_gate(pod),
    ]


def _remove_gate(pod: Pod) -> dict[str, Any]:
    """The operation that removes KubeShare's gate."""
    gate = [each.name for each in pod.spec.scheduling_gates].index(GATE)
    return {"op": "remove", "path": f"/spec/schedulingGates/{gate}"}


def _gang_of_bound(pod: Pod) -> list[str]:
    """Index function: the gang of a plain pod that is bound and has not failed."""
    metadata, failed = pod.metadata, pod.status.phase == "Failed"
    if metadata.labels.get(LABEL_ROLE) != ROLE_POD or not pod.spec.node_name or failed:
        return []
    name = gang_named({"metadata": {"labels": metadata.labels}})
    return [gang_value(Key(metadata.namespace, name))] if name else []
