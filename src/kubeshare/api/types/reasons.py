"""The reasons that conditions of SharePods may have: these and no other.

``docs/conditions.md`` says what each of them means, and what to do. What
kube-scheduler and the kubelet call their own reasons stands in the message.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a condition is as it is."""

    # Scheduled
    BOUND = "Bound"
    GIVEN = "Given"
    NEVER_FITS = "NeverFits"
    INVALID = "Invalid"
    QUOTA = "QuotaExceeded"
    POSTPONED = "Postponed"
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_NO_ROOM = "GangNoRoom"
    GANG_TIMED_OUT = "GangTimedOut"

    # Scheduled, or Allocated
    NO_ROOM = "NoRoom"
    RELEASING = "Releasing"

    # Allocated
    ALLOCATED = "Allocated"
    CREATING = "Creating"
    GPU_NOT_FREE = "GPUNotFree"
    PLACEHOLDER_FAILED = "PlaceholderFailed"
    GPU_LOST = "GPULost"
    NOT_SHAREABLE = "NotShareable"
    UNDONE = "Undone"
    PART_TAKEN_BACK = "PartTakenBack"
    NODE_FULL = "NodeFull"
    RELEASED = "Released"

    # Degraded, and of those who share the GPU Allocated
    GPU_UNHEALTHY = "GPUUnhealthy"
    PLACEHOLDER_LOST = "PlaceholderLost"
    HEALTHY = "Healthy"

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
