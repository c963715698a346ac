"""The reasons of conditions that KubeShare writes.

``docs/conditions.md`` explains each of them. Reasons of kube-scheduler and the kubelet appear in
messages only.
"""

from enum import StrEnum


class Reason(StrEnum):
    """The reason of a condition."""

    # Scheduled
    BOUND = "Bound"
    GIVEN = "Given"
    NEVER_FITS = "NeverFits"
    INVALID = "Invalid"
    QUOTA = "QuotaExceeded"
    POLICY_FAILED = "PolicyFailed"
    POSTPONED = "Postponed"
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_NO_ROOM = "GangNoRoom"
    GANG_TIMED_OUT = "GangTimedOut"

    # Scheduled, or Allocated
    NO_ROOM = "NoRoom"
    UPGRADE_IN_PROGRESS = "UpgradeInProgress"
    RELEASING = "Releasing"

    # Allocated
    ALLOCATED = "Allocated"
    CREATING = "Creating"
    GPU_NOT_FREE = "GPUNotFree"
    PLACEHOLDER_FAILED = "PlaceholderFailed"
    GPU_LOST = "GPULost"
    NOT_SHAREABLE = "NotShareable"
    OTHER_MODEL = "OtherModel"
    UNDONE = "Undone"
    PART_TAKEN_BACK = "PartTakenBack"
    NODE_FULL = "NodeFull"
    RELEASED = "Released"

    # Degraded, and Allocated of the SharePods that share the GPU
    GPU_UNHEALTHY = "GPUUnhealthy"
    PLACEHOLDER_LOST = "PlaceholderLost"
    UNRECORDED_PODS = "UnrecordedPods"
    DRIVER_TOO_OLD = "DriverTooOld"
    HEALTHY = "Healthy"
    NODE_OWNED = "NodeOwned"

    # Owned; the first also Degraded, and Allocated
    GPUS_OFFERED = "GPUsOffered"
    GPUS_IN_USE = "GPUsInUse"
    AGENT_OUTDATED = "AgentOutdated"
    TAKING_OVER = "TakingOver"
    MIGRATING = "Migrating"
    OWNED = "Owned"
    NOT_REQUESTED = "NotRequested"

    # Matched, of a GPUQuota
    MATCHED = "Matched"
    NO_SUCH_GPU = "NoSuchGPU"

    # Ready
    POD_READY = "PodReady"
    POD_PENDING = "PodPending"
    UNSCHEDULABLE = "Unschedulable"
    CONTAINER_WAITING = "ContainerWaiting"
    POD_NOT_READY = "PodNotReady"
    STOPPING = "Stopping"
    POD_SUCCEEDED = "PodSucceeded"
    POD_FAILED = "PodFailed"
    NAME_TAKEN = "NameTaken"
    INVALID_POD = "InvalidPod"
    POD_FORBIDDEN = "PodForbidden"
