"""Whether anything of a pod still runs on this machine, whatever the cluster says of it.

A pod that was deleted by force is gone from the API server, and so is any word of its
containers; while the kubelet is down they go on for as long as they like. Their
processes are there to be seen: the agent shares the host's pids.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubeshare.node.cgroups import parse_cgroup

HasProcesses = Callable[[str], bool]
"""Given the uid of a pod, whether a process of it is there; blocks."""

_PROC: Final = Path("/proc")
_TEXT_MAX: Final = 64 * 1024


def has_processes(pod_uid: str, proc: Path = _PROC) -> bool:
    """Whether a process of a pod is there.

    A process may claim to be another pod's, by a cgroup within its own: what is believed
    then only keeps a part held for longer.

    Args:
        pod_uid: the pod's.
        proc: where the kernel tells of processes.
    """
    return any(
        _is_of(entry / "cgroup", pod_uid) for entry in proc.iterdir() if entry.name.isdigit()
    )


def _is_of(cgroup: Path, pod_uid: str) -> bool:
    try:
        with cgroup.open() as file:
            return pod_uid in parse_cgroup(file.read(_TEXT_MAX)).pods
    except OSError:
        return False  # it has ended meanwhile
