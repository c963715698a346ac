"""Checks whether a pod still has processes on this machine.

A pod that was deleted by force is gone from the API server together with the status of
its containers; while the kubelet is down they continue to run. The agent finds their
processes because it shares the host's PID namespace.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from kubeshare.node.cgroups import parse_cgroup

HasProcesses: TypeAlias = Callable[[str], bool]
"""Whether the pod with this uid has a process here; blocks."""

_PROC: Final = Path("/proc")
_TEXT_MAX: Final = 64 * 1024


def has_processes(pod_uid: str, proc: Path = _PROC) -> bool:
    """Whether a pod has a process here, according to ``proc``.

    A process may pretend to be another pod's by a cgroup within its own: that only keeps a
    share held for longer.
    """
    return any(
        _is_of(entry / "cgroup", pod_uid) for entry in proc.iterdir() if entry.name.isdigit()
    )


def _is_of(cgroup: Path, pod_uid: str) -> bool:
    try:
        with cgroup.open() as file:
            return pod_uid in parse_cgroup(file.read(_TEXT_MAX)).pods
    except OSError:
        return False  # it has ended
