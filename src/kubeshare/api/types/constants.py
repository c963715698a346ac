"""Names that several programs must agree on: written once, here."""

from typing import Final

from kubeshare.dialects import containers

GROUP: Final = "kubeshare.nthu"
NAMESPACE: Final = "kubeshare-system"

# The extended resource that a container asks for, and what backs it (DRA).
VGPU_RESOURCE: Final = containers.VGPU_RESOURCE
DRA_DRIVER: Final = "vgpu.kubeshare.nthu"
CDI_CLAIM_KIND: Final = "kubeshare.nthu/claim"

# What a native pod, and our placeholder, ask for.
WHOLE_GPU_RESOURCE: Final = "nvidia.com/gpu"

LABEL_ROLE: Final = "kubeshare.nthu/role"
ROLE_PLACEHOLDER: Final = "placeholder"
ROLE_MISSING: Final = "missing"
ROLE_SHAREPOD: Final = "sharepod"
ROLE_POD: Final = "pod"
LABEL_VGPU: Final = "kubeshare.nthu/vgpu"
LABEL_IN_USE: Final = "kubeshare.nthu/in-use"
LABEL_POOL: Final = "kubeshare.nthu/pool"
LABEL_SHAREPOD_UID: Final = "kubeshare.nthu/sharepod-uid"
LABEL_REQUESTER_UID: Final = "kubeshare.nthu/asker-uid"

# A plain pod that asks for a share waits behind this gate until it has its part of a GPU;
# then these annotations say which. They describe: what it gets, the holder alone says.
GATE: Final = "kubeshare.nthu/gpu"
ANNOTATION_GPUIDS: Final = "kubeshare.nthu/gpuids"
ANNOTATION_NODE: Final = "kubeshare.nthu/node"

PLACEHOLDER_PRIORITY_CLASS: Final = "kubeshare-placeholder"
MISSING_PRIORITY_CLASS: Final = "kubeshare-missing"
MISSING_PREFIX: Final = "kubeshare-missing-"
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PLACEHOLDER_GUARD: Final = "kubeshare-guard-placeholders"
# Of a placeholder that `kubeshare uninstall` takes away, since nobody shares its GPU any more.
ANNOTATION_GIVEN_BACK: Final = "kubeshare.nthu/given-back"
PLACEHOLDER_PREFIX: Final = "kubeshare-vgpu-"

# A generated GPUID begins so, and no user's new one may.
GENERATED_ID_PREFIX: Final = "vgpu-"

# Conditions of a SharePod. Each has one owner: Sched the first, DevMgr the others.
CONDITION_SCHEDULED: Final = "Scheduled"
CONDITION_POD_SCHEDULED: Final = "kubeshare.nthu/Scheduled"  # of a plain pod, by Sched
CONDITION_ALLOCATED: Final = "Allocated"
CONDITION_READY: Final = "Ready"

# When DevMgr last touched a pod that did not begin: its kubelet then looks at it at once.
ANNOTATION_NUDGED: Final = "kubeshare.nthu/nudged"

# Conditions of a VGPU: DevMgr's, and the node agent's.
CONDITION_DEGRADED: Final = "Degraded"
CONDITION_SHAREABLE: Final = "Shareable"

# How far NVIDIA's operator has come with a node's driver; it writes it, we read it.
LABEL_DRIVER_UPGRADE: Final = "nvidia.com/gpu-driver-upgrade-state"

# Field managers of server-side apply, one a program.
MANAGER_SCHEDULER: Final = "kubeshare-scheduler"
MANAGER_DEVICES: Final = "kubeshare-device-manager"
MANAGER_NODE: Final = "kubeshare-node-agent"


def placeholder_name(gpuid: str) -> str:
    """The name of the pod that keeps the GPU of the vGPU ``gpuid`` from everybody else."""
    return PLACEHOLDER_PREFIX + gpuid
