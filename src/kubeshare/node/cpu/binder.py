"""Binds the containers with shares to the CPU cores near their GPUs.

What is bound is read from the cgroups each time, so a restart of this program changes nothing.
Programs that bind containers themselves have precedence: the kubelet's CPU manager on the whole
node, others for the containers that they have bound.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import structlog

from kubeshare.api.configuration import CpuCores, parse_cpu_cores
from kubeshare.api.predicates.pod_requests import thousandths
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpu_binding import Binding, bind_cpus
from kubeshare.core.topology.cpus import Cpus, format_cpu_list, read_cpu_list
from kubeshare.dialects.share_fields import POD_PREFIX
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.events import EventRecorder, ObjectReference, reference
from kubeshare.kube.resources import NODES
from kubeshare.node.cpu.containers import Candidate, GpuContainer, find_containers
from kubeshare.node.cpu.cpusets import Container, Cpusets
from kubeshare.node.cpu.metrics import BoundContainer, CpuMetrics
from kubeshare.node.dra.grants import Grants
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.pod_resources import PodResourcesError
from kubeshare.node.node_view import NODE_PODS, NodePod, NodeView

log = structlog.get_logger(__name__)

CPU_CORES: Final = POD_PREFIX + "cpuCores"
"""The annotation of a pod that overrides ``cpuCores`` of the configuration."""
CHECK_SECONDS: Final = 60.0
"""Seconds until bound containers are checked again: CPUs may go offline, and grants end."""

_ENDED: Final = (errno.ENOENT, errno.ENODEV)
"""What the kernel says of a cgroup that was removed."""

_BY_KUBELET: Final = (
    "KubeShare binds no containers to the CPUs near their GPUs, because the kubelet's CPU manager "
    "binds containers on this node: its policy is not none"
)


class CpuBinder:
    """Binds the containers of one node.

    Args:
        view: this node's pods.
        grants: the grants on disk.
        inventory: this node's GPUs, with the CPUs near them.
        cpusets: reads and writes the cgroups.
        cores: reads the cores of this machine; blocks.
        default: how many cores the containers of a pod get that does not say it.
        exclusive_cpus: asks for the CPUs that the kubelet assigns; raises ``PodResourcesError``.
        grants_of: the names of the grants that a process (pid) has mounted; blocks.
        events: reports to people.

    Attributes:
        controller: reconciles all containers of the node, by the node's name.
        metrics: of what is bound.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        view: NodeView,
        grants: Grants,
        inventory: Inventory,
        *,
        cpusets: Cpusets,
        cores: Callable[[], Iterable[Cpus]],
        default: Callable[[], CpuCores],
        exclusive_cpus: Callable[[], Awaitable[set[int]]],
        grants_of: Callable[[int], tuple[str, ...]],
        events: EventRecorder,
    ) -> None:
        self._view = view
        self._grants = grants
        self._inventory = inventory
        self._cpusets = cpusets
        self._cores = cores
        self._default = default
        self._exclusive_cpus = exclusive_cpus
        self._grants_of = grants_of
        self._events = events
        self._stands_back = False
        self._reasons: dict[str, str] = {}  # container → why it was not bound when last seen
        self.metrics = CpuMetrics()
        self.controller: Controller[str] = Controller("cpu-binding", self.reconcile)
        self.controller.watch(view.pods, self._node_of)
        self.controller.watch(inventory.reflector, lambda _: (view.node,))

    def _node_of(self, pod: NodePod) -> Iterable[str]:
        return (self._view.node,) if self._grants.of_pod(pod.metadata.uid) else ()

    async def reconcile(self, _node: str) -> RequeueAfter | None:
        """Bind and release containers as pods, GPUs and configuration say now."""
        if not self._inventory.first_reading.is_set():
            return None  # the agent queues the node then
        candidates = dict(self._candidates())
        pods = {pod.metadata.uid for pod in self._view.pods.store.snapshot().values()}
        found, others = await asyncio.to_thread(
            find_containers, self._cpusets, candidates, pods, self._grants_of
        )
        if not found and not others:
            self._record([], Binding({}, frozenset()), {})
            return None
        tenants = {each.container.id: each.tenant for each in found if not each.cpuset.foreign}
        binding = bind_cpus(tenants, await asyncio.to_thread(self._cores))
        changes = [(container, frozenset[int]()) for container in others]
        changes += [
            (each.container, cpus)
            for each in found
            if (cpus := binding.cpus.get(each.container.id, frozenset())) != each.cpuset.bound
        ]
        foreign = any(each.cpuset.foreign for each in found)
        if (changes or foreign) and await self._must_stand_back():
            self._record([], Binding({}, frozenset()), {})
        else:
            failures = await asyncio.to_thread(self._apply, changes)
            self._record(found, binding, failures)
        return RequeueAfter(CHECK_SECONDS)

    def _candidates(self) -> Iterator[tuple[str, Candidate]]:
        """The id of each container of a pod with grants, unless it is not to be bound."""
        near = {device.uuid: _near(device.cpu_list) for device in self._inventory.found.devices}
        for pod in self._view.pods.store.snapshot().values():
            claims = map(self._grants.read, self._grants.of_pod(pod.metadata.uid))
            names = [name for claim in claims if claim is not None for name in claim.names]
            cores = self._cores_of(pod) if names else "none"
            if cores == "none":
                continue
            grants = {
                name: tuple(near.get(gpu.uuid, frozenset()) for gpu in self._grants.shares(name))
                for name in names
            }
            requests = {
                container.name: thousandths(container.resources.requests.get("cpu", 0))
                for container in (*pod.spec.containers, *pod.spec.init_containers)
            }
            for container_id, name in pod.status.containers:
                yield (
                    container_id,
                    Candidate(
                        pod=pod,
                        name=name,
                        cores=None if cores == "all" else cores,
                        cpu_request=requests.get(name, 0),
                        near=grants,
                    ),
                )

    def _cores_of(self, pod: NodePod) -> CpuCores:
        text = pod.metadata.annotations.get(CPU_CORES, "")
        try:
            return parse_cpu_cores(text, CPU_CORES) if text else self._default()
        except InvalidValueError as error:  # a policy refuses it, but the pod may be older
            log.warning("annotation ignored", pod=str(pod.metadata.key), reason=str(error))
            return self._default()

    async def _must_stand_back(self) -> bool:
        """Whether the kubelet binds containers on this node, or does not say so now."""
        try:
            assigns = bool(await self._exclusive_cpus())
        except PodResourcesError as error:
            log.info("no container is bound now", reason=str(error))
            return True
        if assigns and not self._stands_back:
            log.warning("no containers are bound", reason=_BY_KUBELET)
            # By the uid that the kubelet itself uses in its events.
            node = self._view.node
            about = ObjectReference(
                api_version=NODES.api_version, kind=NODES.kind, name=node, uid=node
            )
            self._events.emit(about, "CPUsNotBound", "Binding", _BY_KUBELET)
        self._stands_back = assigns
        return assigns

    def _apply(self, changes: Iterable[tuple[Container, Cpus]]) -> dict[str, str]:
        """Bind each container, or release it if it gets no CPUs; blocks.

        Returns:
            container → why it could not be done.
        """
        failures = {}
        for container, cpus in changes:
            try:
                if cpus:
                    self._cpusets.bind(container, cpus)
                else:
                    self._cpusets.release(container)
            except (OSError, InvalidValueError) as error:
                if not isinstance(error, OSError) or error.errno not in _ENDED:
                    failures[container.id] = str(error)
                continue
            log.info(
                "container bound" if cpus else "container released",
                pod_uid=container.pod,
                container=container.id,
                cpus=format_cpu_list(cpus),
            )
        return failures

    def _record(
        self, found: Iterable[GpuContainer], binding: Binding, failures: dict[str, str]
    ) -> None:
        """Update the metrics, and report once for each container why it is not bound."""
        bound, reasons = [], {}
        for each in found:
            pod, name, identity = each.candidate.pod, each.candidate.name, each.container.id
            if reason := failures.get(identity) or _reason(each, binding):
                reasons[identity] = reason
                if self._reasons.get(identity) != reason:
                    note = f"container {name} is not bound to the CPUs near its GPUs: {reason}"
                    self._events.emit(reference(NODE_PODS, pod), "CPUsNotBound", "Binding", note)
            elif cpus := binding.cpus.get(identity):
                key = pod.metadata.key
                bound.append(BoundContainer(key.namespace, key.name, name, cpus))
        self._reasons = reasons
        self.metrics.bound = tuple(bound)


def _reason(found: GpuContainer, binding: Binding) -> str:
    """Why a container is not bound that could be; "" if it is, or need not be."""
    if found.cpuset.foreign:
        cpus = format_cpu_list(found.cpuset.foreign)
        return f"another program has bound it to the CPUs {cpus}"
    if found.container.id in binding.without_room:
        cpus = format_cpu_list(frozenset[int]().union(*found.near))
        return f"the CPUs {cpus} have no room for its CPU request beside those of other containers"
    return ""


def _near(cpu_list: str) -> Cpus:
    """The CPUs near a GPU; none if they are unknown."""
    try:
        return read_cpu_list(cpu_list, "cpuList")
    except InvalidValueError:
        return frozenset()
