"""Finds a node's containers with GPUs and the CPUs near these.

Which container a cgroup is of says its name, which the container runtime gave it; which GPUs a
container uses says the grant that its processes have mounted, of those of its pod.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

import structlog
from msgspec import Struct

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpu_binding import Tenant
from kubeshare.core.topology.cpus import Cpus
from kubeshare.node.cpu.cpusets import Container, Cpuset, Cpusets
from kubeshare.node.node_view import NodePod

log = structlog.get_logger(__name__)


class Candidate(Struct, frozen=True, kw_only=True):
    """A container of a pod with grants.

    Attributes:
        pod: its pod.
        name: its name.
        cores: as in :class:`Tenant`.
        cpu_request: as in :class:`Tenant`.
        near: name of each grant of the pod → the CPUs near each of its GPUs.
    """

    pod: NodePod
    name: str
    cores: int | None
    cpu_request: int
    near: Mapping[str, tuple[Cpus, ...]]


class GpuContainer(Struct, frozen=True):
    """A running container that uses GPUs.

    Attributes:
        candidate: what is known of it.
        container: its cgroup.
        cpuset: its CPU set.
        near: the CPUs near each of its GPUs.
    """

    candidate: Candidate
    container: Container
    cpuset: Cpuset
    near: tuple[Cpus, ...]

    @property
    def tenant(self) -> Tenant:
        """As a choice of CPUs sees it."""
        return Tenant(
            near=self.near,
            allowed=self.cpuset.allowed,
            cores=self.candidate.cores,
            bound=self.cpuset.bound,
            cpu_request=self.candidate.cpu_request,
        )


def find_containers(
    cpusets: Cpusets,
    candidates: Mapping[str, Candidate],
    pods: AbstractSet[str],
    grants_of: Callable[[int], tuple[str, ...]],
) -> tuple[list[GpuContainer], list[Container]]:
    """Find the running containers of a node; blocks.

    Args:
        cpusets: of the machine.
        candidates: by the ids of their containers.
        pods: the uids of the node's pods. The nodes of a lab share a machine.
        grants_of: the names of the grants that a process (pid) has mounted.

    Returns:
        those that use GPUs, and those others that are bound.
    """
    found, others = [], []
    for container in cpusets.containers():
        if container.pod not in pods:
            continue
        try:
            cpuset = cpusets.read(container)
        except (OSError, InvalidValueError) as error:
            log.debug("no CPU set", container=container.id, reason=str(error))
            continue
        candidate = candidates.get(container.id)
        if candidate is not None and candidate.pod.metadata.uid == container.pod:
            mounted = _mounted(container, grants_of)
            near = tuple(cpus for name in mounted for cpus in candidate.near.get(name, ()))
            if near:
                found.append(GpuContainer(candidate, container, cpuset, near))
                continue
        if cpuset.bound:
            others.append(container)
    return found, others


def _mounted(container: Container, grants_of: Callable[[int], tuple[str, ...]]) -> tuple[str, ...]:
    """The grants that a container has mounted; its processes have the same mounts."""
    for pid in container.pids():
        with suppress(OSError):  # it has ended
            if grants := grants_of(pid):
                return grants
    return ()
