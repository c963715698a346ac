"""Finds a process's pod and container by its cgroup path.

A container cannot choose its own cgroup: the runtime puts each container into a cgroup
named after the container's id, below one that the kubelet names after the pod's uid. The
path before these differs between versions, drivers and namespaces (a reader in a cgroup
namespace of its own sees ``/../..`` there), so only these names are matched.
"""

import re
from typing import Final

from msgspec import Struct

# As cgroupfs, systemd and containerd's mixture of both name them.
_CONTAINER: Final = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
_POD: Final = re.compile(
    r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?::|$)"
)


class CgroupIds(Struct, frozen=True):
    """The ids in a cgroup path, outermost first: a container may create cgroups in its own.

    Attributes:
        containers: possible ids of containers.
        pods: possible uids of pods.
    """

    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


def parse_cgroup(text: str) -> CgroupIds:
    """Parse the text of ``/proc/PID/cgroup``, of cgroup version 1, 2 or both."""
    containers: dict[str, None] = {}
    pods: dict[str, None] = {}
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        for name in path.split("/"):
            if container := container_in(name):
                containers[container] = None
            if pod := pod_in(name):
                pods[pod] = None
    return CgroupIds(tuple(containers), tuple(pods))


def container_in(name: str) -> str:
    """The container's id in the name of a cgroup; ``""`` if it is not a container's."""
    found = _CONTAINER.search(name)
    return found[1] if found else ""


def pod_in(name: str) -> str:
    """The pod's uid in the name of a cgroup; ``""`` if it is not a pod's."""
    found = _POD.search(name)
    return found[1].replace("_", "-") if found else ""
