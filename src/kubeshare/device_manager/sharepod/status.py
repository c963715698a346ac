"""Computes the device manager's part of a SharePod's status. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from kubeshare.api.predicates.exclusions import describe as exclusion_message
from kubeshare.api.types.constants import CONDITION_ALLOCATED, CONDITION_READY
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, AllocatedGPU, ExcludedNode, GPUSummary
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.kube.meta import Condition

_ORDINARY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers that only mean that they are starting."""

MESSAGE_LENGTH: Final = 1000


class Report(Struct, frozen=True, kw_only=True):
    """The device manager's part of a SharePod's status.

    ``passing`` marks a state that normally ends in a moment, and is written only if it lasts.
    ``acted_on`` marks a state on which the controller acts once the status has been written.
    """

    conditions: tuple[Condition, ...]
    node: str = ""
    gpus: tuple[AllocatedGPU, ...] = ()
    phase: str = ""
    message: str = ""
    pod_ip: str = ""
    start_time: str = ""
    finish_time: str = ""
    passing: bool = False
    acted_on: bool = False

    @property
    def summary(self) -> GPUSummary:
        """Its GPUs, in their order; of their models, each once."""
        return GPUSummary(
            ids=",".join(gpu.id for gpu in self.gpus),
            uuids=",".join(gpu.uuid for gpu in self.gpus if gpu.uuid),
            models=",".join(dict.fromkeys(gpu.model for gpu in self.gpus if gpu.model)),
        )


def not_allocated(reason: Reason, message: str, *, passing: bool = False) -> Report:
    """The SharePod does not have its GPUs (yet)."""
    return Report(
        conditions=(_condition(CONDITION_ALLOCATED, "False", reason, message),),
        message=message[:MESSAGE_LENGTH],
        passing=passing,
    )


def blocked(blocker: Blocker) -> Report:
    """One of the vGPUs is not ready."""
    return not_allocated(blocker.reason, blocker.message, passing=blocker.transient)


def rescheduling(set_aside: Sequence[ExcludedNode]) -> Report:
    """The last decision was cleared, and Sched has not made another one."""
    message = "it has lost its GPU, and the scheduler has not chosen another one yet"
    if not set_aside:
        return not_allocated(Reason.UNDONE, message, passing=True)
    last = max(set_aside, key=lambda entry: entry.until)
    if last.id:
        return not_allocated(
            Reason.UNDONE, f"vGPU {last.id} {exclusion_message(last)}", passing=True
        )
    return not_allocated(
        Reason.NODE_FULL, f"node {last.node} {exclusion_message(last)}", passing=True
    )


def without_pod(
    vgpus: Sequence[VGPU], reason: Reason, message: str, *, passing: bool = False
) -> Report:
    """The SharePod has its GPUs, but its pod cannot be created."""
    ready = _condition(CONDITION_READY, "False", reason, message)
    return Report(
        conditions=(_allocated(vgpus), ready) if vgpus else (ready,),
        gpus=_gpus(vgpus),
        node=vgpus[0].spec.node_name if vgpus else "",
        message=message[:MESSAGE_LENGTH],
        passing=passing,
    )


def refused(message: str, *, shares: bool) -> Report:
    """The API server refuses the pod as it is; its shares, if it has any, are released."""
    ready = _condition(CONDITION_READY, "False", Reason.INVALID_POD, message)
    released = "its pod is refused, so its share of the GPU is released"
    allocated = _condition(CONDITION_ALLOCATED, "False", Reason.RELEASED, released)
    return Report(
        conditions=(allocated, ready) if shares else (ready,),
        message=message[:MESSAGE_LENGTH],
        acted_on=True,
    )


def of_pod(
    pod: Pod,
    vgpus: Sequence[VGPU],
    problem: tuple[Reason, str] | None = None,
    reported: Sequence[AllocatedGPU] = (),
) -> Report:
    """The status of a SharePod that has a pod.

    Args:
        pod: the SharePod's pod.
        vgpus: the vGPUs that it shares; none for a pod without a GPU.
        problem: what is wrong with its GPUs, if anything.
        reported: the GPUs in the present status, which outlive the vGPUs of an ended pod.
    """
    ready, passing = _ready(pod)
    conditions: tuple[Condition, ...] = (ready,)
    gpus = _gpus(vgpus) or (tuple(reported) if pod.terminal else ())
    if gpus:
        allocated = _allocated(vgpus)
        if pod.terminal:
            message = "the pod has ended and its share of the GPU is released"
            allocated = _condition(CONDITION_ALLOCATED, "False", Reason.RELEASED, message)
        elif problem:
            allocated = _condition(CONDITION_ALLOCATED, "False", *problem)
        conditions = (allocated, ready)
    return Report(
        conditions=conditions,
        node=pod.spec.node_name,
        gpus=gpus,
        phase=pod.status.phase,
        pod_ip=pod.status.pod_ip,
        start_time=pod.status.start_time,
        finish_time=pod.finish_time,
        message=pod.status.message[:MESSAGE_LENGTH] or ("" if passing else _message(ready)),
        passing=passing and not problem,
    )


def stopping(
    pod: Pod, vgpus: Sequence[VGPU], reported: Sequence[AllocatedGPU], overdue: str = ""
) -> Report:
    """The status of a deleted SharePod whose pod has not gone.

    Args:
        pod: the SharePod's pod.
        vgpus: the vGPUs that it shares.
        reported: the GPUs in the present status.
        overdue: why the pod takes longer than it should; ``""`` while it does not.
    """
    report = of_pod(pod, vgpus, reported=reported)
    message = overdue or "the SharePod is deleted: its containers are being stopped"
    ready = _condition(CONDITION_READY, "False", Reason.STOPPING, message)
    others = tuple(each for each in report.conditions if each.type != CONDITION_READY)
    return msgspec.structs.replace(
        report, conditions=(*others, ready), message=ready.message, passing=not overdue
    )


def _ready(pod: Pod) -> tuple[Condition, bool]:
    """The Ready condition, and whether the pod is only starting."""
    status = pod.status
    if pod.terminal:
        message = status.message or f"the pod has ended: {status.phase}"
        ended = Reason.POD_SUCCEEDED if status.phase == "Succeeded" else Reason.POD_FAILED
        return _not_ready(ended, message), False
    ready = pod.condition("Ready")
    if ready is not None and ready.status == "True":
        return _condition(CONDITION_READY, "True", Reason.POD_READY, "the pod is ready"), False
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        usual = scheduled.reason == Reason.UNSCHEDULABLE
        message = scheduled.message if usual else _joined(scheduled.reason, scheduled.message)
        return _not_ready(Reason.UNSCHEDULABLE, message), False
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _ORDINARY:
            message = f"container {container.name}: {_joined(waiting.reason, waiting.message)}"
            return _not_ready(Reason.CONTAINER_WAITING, message), False
    if status.phase == "Pending":
        message = "the pod is being started" if pod.spec.node_name else "the pod is being scheduled"
        return _not_ready(Reason.POD_PENDING, message), True
    message = (
        "the state of its containers is not known"
        if ready is None
        else _joined(ready.reason, ready.message)
    )
    return _not_ready(Reason.POD_NOT_READY, message), False


def _joined(reason: str, message: str) -> str:
    """A reason and a message of Kubernetes, either of which may be empty."""
    return ": ".join(each for each in (reason, message) if each)


def _message(ready: Condition) -> str:
    return "" if ready.status == "True" else ready.message


def _allocated(vgpus: Sequence[VGPU]) -> Condition:
    names = ", ".join(f"{vgpu.gpuid} ({vgpu.spec.uuid})" for vgpu in vgpus)
    return _condition(CONDITION_ALLOCATED, "True", Reason.ALLOCATED, f"share of {names}")


def _gpus(vgpus: Sequence[VGPU]) -> tuple[AllocatedGPU, ...]:
    return tuple(
        AllocatedGPU(id=vgpu.gpuid, uuid=vgpu.spec.uuid, model=vgpu.spec.model) for vgpu in vgpus
    )


def _not_ready(reason: Reason, message: str) -> Condition:
    return _condition(CONDITION_READY, "False", reason, message)


def _condition(kind: str, status: str, reason: Reason, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message[:MESSAGE_LENGTH])
