"""Whose process is this: read from where its cgroup lies, which no container decides.

Container runtimes put each container into a cgroup that is named after the container's
id, and the kubelet puts that into one named after the pod's uid. What comes before it in
a path differs between versions, drivers and namespaces (a reader in a cgroup namespace of
its own sees ``/../..`` there), so only these names are looked at.
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
    """Where a process is, outermost first: a container may make cgroups within its own.

    Attributes:
        containers: what may be ids of containers.
        pods: what may be uids of pods.
    """

    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


def parse_cgroup(text: str) -> CgroupIds:
    """What the text of ``/proc/PID/cgroup`` says, of either version or of both at once."""
    containers: dict[str, None] = {}
    pods: dict[str, None] = {}
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        for part in path.split("/"):
            if found := _CONTAINER.search(part):
                containers[found[1]] = None
            if found := _POD.search(part):
                pods[found[1].replace("_", "-")] = None
    return CgroupIds(tuple(containers), tuple(pods))
