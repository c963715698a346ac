"""Kubernetes' own objects, as far as sharing GPUs has to look at them: Node and Pod."""

from typing import Final

from msgspec import Struct, field

from kubeshare.api.types.constants import (
    ANNOTATION_GPUIDS,
    GATE,
    LABEL_DRIVER_UPGRADE,
    LABEL_ROLE,
    LABEL_VGPU,
    NAMESPACE,
    ROLE_PLACEHOLDER,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.kube import resources
from kubeshare.kube.meta import Condition, ObjectMeta

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that will not run again, and holds no GPU any more."""


class ResourceNeeds(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a container asks for; of extended resources requests and limits are the same."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class Container(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One container of a pod's spec; only init containers may restart ``Always``."""

    name: str
    resources: ResourceNeeds = field(default_factory=ResourceNeeds)
    restart_policy: str = ""


class SchedulingGate(Struct, frozen=True, omit_defaults=True, gc=False):
    """What keeps kube-scheduler from looking at a pod."""

    name: str


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Where a pod is bound (``node_name``, ``""`` before), and what it asks for."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int] = {}
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class Waiting(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Running(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Since when a container runs."""

    started_at: str | None = None


class Terminated(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """When a container has ended; of one that nobody saw end, the API server says null."""

    finished_at: str | None = None


class ContainerState(Struct, frozen=True, omit_defaults=True, gc=False):
    """``waiting`` is None once the container has started, ``terminated`` until it has ended."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    """How one container of a pod is."""

    name: str
    state: ContainerState = field(default_factory=ContainerState)


class PodStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What the kubelet and kube-scheduler say of a pod."""

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
        """It has ended and will not run again."""
        return self.status.phase in TERMINAL_PHASES

    @property
    def whole_gpus(self) -> int:
        """How many physical GPUs it asks Kubernetes for."""
        # Init containers run one after the other, before the others: they reuse their GPUs.
        first = max(map(_gpus, self.spec.init_containers), default=0)
        return max(first, sum(map(_gpus, self.spec.containers)))

    @property
    def gated(self) -> bool:
        """It waits for Sched to give it a part of a GPU."""
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)

    @property
    def gpuids(self) -> tuple[str, ...]:
        """The vGPUs that Sched has noted on it; only where it holds parts of them is that so."""
        noted = self.metadata.annotations.get(ANNOTATION_GPUIDS, "")
        return tuple(noted.split(",")) if noted else ()

    @property
    def is_managed(self) -> bool:
        """KubeShare has made it to keep a GPU, or to show that one is missing.

        Labels alone could be anybody's: such pods live in a namespace of their own.
        """
        return self.metadata.namespace == NAMESPACE and LABEL_ROLE in self.metadata.labels

    @property
    def placeholder_of(self) -> str:
        """The GPUID of which this pod is the placeholder; ``""`` where it is none."""
        labels = self.metadata.labels
        keeps = self.is_managed and labels[LABEL_ROLE] == ROLE_PLACEHOLDER
        return labels.get(LABEL_VGPU, "") if keeps else ""

    @property
    def finish_time(self) -> str:
        """When the last container of a pod that has ended did so; ``""`` where nobody says."""
        if not self.terminal:
            return ""
        states = (each.state.terminated for each in self.status.container_statuses)
        # RFC 3339 in UTC with whole seconds: their order is that of their text.
        return max((state.finished_at or "" for state in states if state), default="")

    @property
    def running_since(self) -> str:
        """When the oldest of its containers that run has started; ``""`` where none runs."""
        states = (each.state.running for each in self.status.container_statuses)
        return min((state.started_at or "" for state in states if state), default="")

    def condition(self, kind: str) -> Condition | None:
        """Its condition of that type, if it has one."""
        return next((found for found in self.status.conditions if found.type == kind), None)


_NO_UPGRADE: Final = frozenset({"", "unknown", "upgrade-required", "upgrade-done"})
"""States of a node of which NVIDIA's operator wants nothing (yet, any more)."""
_EMPTIED: Final = frozenset(
    {"pod-deletion-required", "drain-required", "node-maintenance-required", "pod-restart-required"}
)
"""States in which it waits until nobody uses the driver."""


class Taint(Struct, frozen=True, omit_defaults=True, gc=False):
    """What keeps pods that do not tolerate it off a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether a node takes pods at all."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a node offers, and how it is."""

    allocatable: dict[str, str | int] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        """Its kubelet says that it works."""
        return any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )

    @property
    def driver_upgrade(self) -> str:
        """The step of an upgrade of its GPU driver that is going on; ``""`` where none is."""
        step = self.metadata.labels.get(LABEL_DRIVER_UPGRADE, "")
        return "" if step in _NO_UPGRADE else step

    @property
    def is_schedulable(self) -> bool:
        """New pods that share its GPUs may come."""
        return self.ready and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """No new pods come for now: what is idle on it is given back."""
        return self.spec.unschedulable or bool(self.driver_upgrade)

    @property
    def must_drain(self) -> bool:
        """All who use its GPUs have to leave now."""
        return self.driver_upgrade in _EMPTIED

    @property
    def whole_gpus(self) -> int:
        """How many physical GPUs it offers."""
        return _count(self.status.allocatable.get(WHOLE_GPU_RESOURCE, 0))


PODS: Final = resources.PODS.into(Pod)
NODES: Final = resources.NODES.into(Node)


def _gpus(container: Container) -> int:
    asked = container.resources.limits.get(WHOLE_GPU_RESOURCE)
    return 0 if asked is None else _count(asked)


def _count(quantity: str | int) -> int:
    """An extended resource's quantity: an integer, in plain digits below a thousand."""
    return int(quantity) if str(quantity).isdigit() else 0
