"""What the manifests of versions 1 and 2 install."""

from typing import Final

from msgspec import Struct

from kubeshare.kube.resources import DAEMON_SETS, DEPLOYMENTS, PODS, Raw, Resource

KUBE_SYSTEM: Final = "kube-system"
"""The namespace of all their programs."""

LIBRARY_VOLUME: Final = "kubeshare-lib"
"""The volume that both versions give each pod that shares a GPU."""
GROUPS: Final = ("kubeshare.nthu", "sharedgpu.goc")
"""The groups of a SharePod: of version 1, and of the time between the versions."""
PLACEHOLDERS: Final = "kubeshare/role=dummyPod"
"""Selects version 1's vGPU pods, each of which keeps a whole GPU."""
GPUID: Final = "kubeshare/GPUID"
"""The annotation of a pod, and the label of a placeholder."""
GPU_UUID: Final = "sharedgpu/gpu_uuid"
"""The annotation that version 2 gives a pod with its GPU."""
SCHEDULER_NAME: Final = "kubeshare-scheduler"
BINDINGS: Final = ("kubeshare-device-manager", "kubeshare-scheduler")
"""Their ClusterRoleBindings, which have the names of this version's."""

STATUS_KEYS: Final = (
    *("PodStatus", "PodObjectMeta", "BoundDeviceID", "PodManagerPort"),
    *("podStatus", "podObjectMeta", "boundDeviceID", "port"),
)
"""What only earlier versions write into the status of a SharePod."""

REPLICAS: Final = "kubeshare.nthu/replicas-before-migration"
STOPPED: Final = "kubeshare.nthu/stopped-by-migration"
"""A node label that no node has: a DaemonSet that selects it runs nowhere."""


class Program(Struct, frozen=True):
    """A program of an earlier version.

    Attributes:
        resource: its kind.
        name: its name in :data:`KUBE_SYSTEM`.
        serves_pods: whether running pods with shares need it.
    """

    resource: Resource[Raw]
    name: str
    serves_pods: bool = False

    @property
    def title(self) -> str:
        """Its kind and name."""
        return f"{self.resource.kind} {KUBE_SYSTEM}/{self.name}"


PROGRAMS: Final = (
    Program(PODS, "kubeshare-scheduler"),
    Program(DEPLOYMENTS, "kubeshare-scheduler"),
    Program(PODS, "kubeshare-device-manager"),
    # Version 2's node daemon writes what the aggregator and the collector export: without them
    # it would take the shares of running pods away.
    Program(DEPLOYMENTS, "kubeshare-aggregator", serves_pods=True),
    Program(DAEMON_SETS, "kubeshare-collector", serves_pods=True),
    Program(DAEMON_SETS, "kubeshare-node-daemon", serves_pods=True),
)
"""In the order in which they are stopped."""


def runs(program: Program, found: Raw) -> bool:
    """Whether a program that is there has not been stopped."""
    spec = found.get("spec") or {}
    if program.resource == DEPLOYMENTS:
        return bool(spec.get("replicas", 1))
    if program.resource == DAEMON_SETS:
        pod = spec.get("template", {}).get("spec", {})
        return STOPPED not in (pod.get("nodeSelector") or {})
    return True
