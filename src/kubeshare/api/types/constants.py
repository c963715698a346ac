"""Names that several programs share."""

import os
from typing import Final

from kubeshare.dialects import containers

GROUP: Final = "kubeshare.nthu"
DEFAULT_NAMESPACE: Final = "kubeshare-system"
NAMESPACE: Final = os.environ.get("KUBESHARE_NAMESPACE") or DEFAULT_NAMESPACE
"""KubeShare's own namespace; its manifests give each program that of its pod."""

# The controllers, and the Leases that their leaders hold.
SCHEDULER: Final = "kubeshare-scheduler"
DEVICE_MANAGER: Final = "kubeshare-device-manager"
# On a Lease: the leader that wrote these annotations, and what its version can do.
ANNOTATION_LEADER: Final = "kubeshare.nthu/leader"
ANNOTATION_SUPPORTS: Final = "kubeshare.nthu/supports"
SUPPORTS_SHARES: Final = "shares"

# The extended resource that a container requests, and the DRA driver behind it.
VGPU_RESOURCE: Final = containers.VGPU_RESOURCE
VGPU_RESOURCES: Final = containers.VGPU_RESOURCES
DRA_DRIVER: Final = "vgpu.kubeshare.nthu"
# On the DeviceClass of the driver's name: the users of the cluster's schedulers, by commas.
ANNOTATION_SCHEDULER_USERS: Final = "kubeshare.nthu/scheduler-users"
CDI_CLAIM_KIND: Final = "kubeshare.nthu/claim"

# The resource that native pods and placeholders request.
WHOLE_GPU_RESOURCE: Final = "nvidia.com/gpu"
# NVIDIA's DRA driver for GPUs, and its DeviceClass for whole ones.
NVIDIA_DRA_DRIVER: Final = "gpu.nvidia.com"

LABEL_ROLE: Final = "kubeshare.nthu/role"
ROLE_PLACEHOLDER: Final = "placeholder"
ROLE_MISSING: Final = "missing"
ROLE_FILLER: Final = "filler"
ROLE_SHAREPOD: Final = "sharepod"
ROLE_POD: Final = "pod"
LABEL_VGPU: Final = "kubeshare.nthu/vgpu"
LABEL_IN_USE: Final = "kubeshare.nthu/in-use"
LABEL_POOL: Final = "kubeshare.nthu/pool"
# On a node: what is done about programs that bypass the device library, report or kill.
LABEL_ESCAPES: Final = "kubeshare.nthu/escapes"
# On a node: how many times the memory of its GPUs is given out, as in 1.5.
LABEL_MEMORY_OVERSUBSCRIPTION: Final = "kubeshare.nthu/memory-oversubscription"
# On a node: its time quota in milliseconds, as in 50.
LABEL_TIME_QUOTA: Final = "kubeshare.nthu/time-quota-ms"
POOL_STATIC: Final = "static"  # of a vGPU on an owned node
LABEL_SHAREPOD_UID: Final = "kubeshare.nthu/sharepod-uid"
LABEL_REQUESTER_UID: Final = "kubeshare.nthu/asker-uid"

# A plain pod with a demand has this scheduling gate until it has its shares; then these
# annotations name its GPUs. They describe only: the holder alone gives it the share.
GATE: Final = "kubeshare.nthu/gpu"
ANNOTATION_GPUIDS: Final = "kubeshare.nthu/gpuids"
ANNOTATION_NODE: Final = "kubeshare.nthu/node"

# On a namespace that may use shares, where only some may (`kubeshare install --only-namespace`).
LABEL_SHARES: Final = "kubeshare.nthu/shares"
ALLOWED: Final = "allowed"

PLACEHOLDER_PRIORITY_CLASS: Final = "kubeshare-placeholder"
MISSING_PRIORITY_CLASS: Final = "kubeshare-missing"
MISSING_PREFIX: Final = "kubeshare-missing-"
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PLACEHOLDER_PREFIX: Final = "kubeshare-vgpu-"
FILLER_PREFIX: Final = "kubeshare-filler-"

# Conditions of a SharePod: Sched owns the first, the device manager the others.
CONDITION_SCHEDULED: Final = "Scheduled"
CONDITION_POD_SCHEDULED: Final = "kubeshare.nthu/Scheduled"  # of a plain pod, by Sched
CONDITION_ALLOCATED: Final = "Allocated"
CONDITION_READY: Final = "Ready"

# When the device manager last patched a pod that did not start, so that its kubelet syncs it.
ANNOTATION_NUDGED: Final = "kubeshare.nthu/nudged"

# The version of a pod for which no Binding of an extender can take effect any more.
ANNOTATION_VOIDED_BINDING: Final = "kubeshare.nthu/voided-binding"

# Conditions of a VGPU: the device manager owns the first, the node agent the second.
CONDITION_DEGRADED: Final = "Degraded"
CONDITION_SHAREABLE: Final = "Shareable"

# KubeShare owns the GPUs of a node with this label: no other pod of Kubernetes gets one of them.
LABEL_GPUS: Final = "kubeshare.nthu/gpus"
GPUS_OWNED: Final = "owned"
# The manifest family to which an owned node is dedicated.
LABEL_FAMILY: Final = "kubeshare.nthu/family"
# On a node that `kubeshare migrate` has moved: the published labels that it had, by commas.
ANNOTATION_PUBLISHED_LABELS: Final = "kubeshare.nthu/published-labels"
# How gpushare pods are placed on the GPUs of a node: "spread", or else packed.
LABEL_PLACEMENT: Final = "ack.node.gpu.placement"
FAMILY_GPUSHARE: Final = "gpushare"
FAMILY_VCUDA: Final = "vcuda"
# The mode in force, in the status of a GPUNode: ``owned``, or else ``shared`` with Kubernetes. The
# condition says whether the static vGPUs of the node accept holders.
MODE_OWNED: Final = "owned"
MODE_SHARED: Final = "shared"
CONDITION_OWNED: Final = "Owned"
# The pool and the model of a node's GPUs in quotas, as Gaia names them.
LABEL_GPU_POOL: Final = "gaia.tencent.com/gpu-pool"
LABEL_GPU_MODEL: Final = "gaia.tencent.com/gpu-model"
# The zone of a node: by default its domain, to which nodes that are near each other belong.
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
# Keeps NVIDIA's device plugin and DRA driver off a node.
LABEL_DEVICE_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
LABEL_DRA_PLUGIN: Final = "nvidia.com/dra-kubelet-plugin"

# The state of a driver upgrade on a node, written by NVIDIA's operator.
LABEL_DRIVER_UPGRADE: Final = "nvidia.com/gpu-driver-upgrade-state"

# Field managers, one for each program.
MANAGER_SCHEDULER: Final = "kubeshare-scheduler"
MANAGER_DEVICES: Final = "kubeshare-device-manager"
MANAGER_EXTENDER: Final = "kubeshare-extender"
MANAGER_NODE: Final = "kubeshare-node-agent"


def placeholder_name(vgpu: str) -> str:
    """The name of the placeholder pod of the vGPU of this name."""
    return PLACEHOLDER_PREFIX + vgpu
