"""Narrow structs of Kubernetes' own objects: Node and Pod."""

from typing import Final

from msgspec import Struct, field

from kubeshare.api import gpuid_list
from kubeshare.api.types.constants import (
    ANNOTATION_GPUIDS,
    ANNOTATION_NODE,
    GATE,
    LABEL_DRIVER_UPGRADE,
    LABEL_PLACEMENT,
    LABEL_ROLE,
    LABEL_VGPU,
    NAMESPACE,
    ROLE_FILLER,
    ROLE_PLACEHOLDER,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import parse_count
from kubeshare.kube import resources
from kubeshare.kube.meta import Condition, ObjectMeta

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended and uses no GPU."""


class ResourceNeeds(Struct, frozen=True, omit_defaults=True, gc=False):
    """The resources of a container; extended resources have equal requests and limits."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class Container(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A container of a PodSpec; only init containers have ``restart_policy`` ``Always``."""

    name: str
    resources: ResourceNeeds = field(default_factory=ResourceNeeds)
    restart_policy: str = ""


class SchedulingGate(Struct, frozen=True, omit_defaults=True, gc=False):
    """A scheduling gate of a pod."""

    name: str


class PodResourceClaim(Struct, frozen=True, omit_defaults=True, gc=False):
    """A claim of a pod, by its name within the pod."""

    name: str


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The node that a pod is bound to (``""`` before), and its resources.

    ``resource_claims`` are those that its author names; one for an extended resource is not listed.
    """

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int] = {}
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class Waiting(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Running(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """When a running container started."""

    started_at: str | None = None


class Terminated(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """When a container ended; null if the kubelet does not know."""

    finished_at: str | None = None


class ContainerState(Struct, frozen=True, omit_defaults=True, gc=False):
    """One of the three is set: waiting, running or terminated."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    """The state of one container."""

    name: str
    state: ContainerState = field(default_factory=ContainerState)


class PodStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What the kubelet and kube-scheduler report about a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Whether it has ended and will not run again."""
        return self.status.phase in TERMINAL_PHASES

    @property
    def whole_gpus(self) -> int:
        """The number of whole GPUs that it requests; the claim of a placeholder is for one."""
        if self.spec.resource_claims and self.placeholder_of:
            return 1
        # Init containers run one after the other before the containers, which reuse their GPUs.
        first = max(map(_gpus, self.spec.init_containers), default=0)
        return max(first, sum(map(_gpus, self.spec.containers)))

    @property
    def gated(self) -> bool:
        """Whether it has KubeShare's scheduling gate."""
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)

    @property
    def gpuids(self) -> tuple[str, ...]:
        """The GPUIDs in its annotation; only holders prove that it has shares."""
        return gpuid_list.parse(self.metadata.annotations.get(ANNOTATION_GPUIDS, ""))

    @property
    def is_managed(self) -> bool:
        """Whether KubeShare created it: a placeholder, or a pod that shows unmet demand.

        Labels alone can be forged, so such pods are in KubeShare's namespace.
        """
        return self.metadata.namespace == NAMESPACE and LABEL_ROLE in self.metadata.labels

    @property
    def placeholder_of(self) -> str:
        """The name of the vGPU whose placeholder this pod is; ``""`` if it is none."""
        labels = self.metadata.labels
        keeps = self.is_managed and labels[LABEL_ROLE] == ROLE_PLACEHOLDER
        return labels.get(LABEL_VGPU, "") if keeps else ""

    @property
    def filler_of(self) -> str:
        """The node whose free GPU this filler pod is to take; ``""`` if it is none."""
        fills = self.is_managed and self.metadata.labels[LABEL_ROLE] == ROLE_FILLER
        return self.metadata.annotations.get(ANNOTATION_NODE, "") if fills else ""

    @property
    def finish_time(self) -> str:
        """When its last container ended; ``""`` if it has not ended or that is unknown."""
        if not self.terminal:
            return ""
        states = (each.state.terminated for each in self.status.container_statuses)
        # RFC 3339 in UTC with whole seconds sorts as text.
        return max((state.finished_at or "" for state in states if state), default="")

    @property
    def running_since(self) -> str:
        """When the longest running of its containers started; ``""`` if none runs."""
        states = (each.state.running for each in self.status.container_statuses)
        return min((state.started_at or "" for state in states if state), default="")

    def condition(self, kind: str) -> Condition | None:
        """Its condition of that type, or None."""
        return next((found for found in self.status.conditions if found.type == kind), None)


_NO_UPGRADE: Final = frozenset({"", "unknown", "upgrade-required", "upgrade-done"})
"""States without an upgrade in progress."""
_DRAINING: Final = frozenset(
    {"pod-deletion-required", "drain-required", "node-maintenance-required", "pod-restart-required"}
)
"""States in which NVIDIA's operator waits until no pod uses the driver."""


class Taint(Struct, frozen=True, omit_defaults=True, gc=False):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether a node is cordoned, and its taints."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The resources that a node offers, and its conditions."""

    allocatable: dict[str, str | int] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is True."""
        return any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )

    @property
    def spreads(self) -> bool:
        """Whether shares are spread over its GPUs, by the label of Alibaba Cloud."""
        return self.metadata.labels.get(LABEL_PLACEMENT) == "spread"

    @property
    def driver_upgrade(self) -> str:
        """The state of a driver upgrade in progress; ``""`` if there is none."""
        step = self.metadata.labels.get(LABEL_DRIVER_UPGRADE, "")
        return "" if step in _NO_UPGRADE else step

    @property
    def is_schedulable(self) -> bool:
        """Whether new pods that share its GPUs may be scheduled on it."""
        return self.ready and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether it is cordoned or its driver is upgraded; its idle vGPUs are deleted."""
        return self.spec.unschedulable or bool(self.driver_upgrade)

    @property
    def must_drain(self) -> bool:
        """Whether all pods that use its GPUs have to be evicted for a driver upgrade."""
        return self.driver_upgrade in _DRAINING

    @property
    def whole_gpus(self) -> int:
        """The number of whole GPUs that it offers."""
        return resource_count(self.status.allocatable.get(WHOLE_GPU_RESOURCE, 0))


PODS: Final = resources.PODS.into(Pod)
NODES: Final = resources.NODES.into(Node)


def _gpus(container: Container) -> int:
    asked = container.resources.limits.get(WHOLE_GPU_RESOURCE)
    return 0 if asked is None else resource_count(asked)


def resource_count(quantity: str | int) -> int:
    """The quantity of an extended resource, which the API server writes as ``16k`` for 16000.

    Extended resources are whole numbers; anything else is 0.
    """
    if str(quantity).isdigit():
        return int(quantity)
    try:
        return parse_count(quantity, "quantity")
    except InvalidValueError:
        return 0
