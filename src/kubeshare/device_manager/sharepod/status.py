"""What a SharePod's status should say, worked out from what there is. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from kubeshare.api.predicates.exclusions import describe as of_entry
from kubeshare.api.types.constants import CONDITION_ALLOCATED, CONDITION_READY
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, AllocatedGPU, ExcludedNode
from kubeshare.kube.meta import Condition

_ORDINARY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers that only mean that they are on their way."""

MESSAGE_LENGTH: Final = 1000


class Report(Struct, frozen=True, kw_only=True):
    """The device manager's part of a SharePod's status.

    ``passing`` marks a state that is normally over in a moment, and is worth a write
    only when it is not. ``acted_on`` marks one upon which something is done once it is told.
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


def not_allocated(reason: Reason, message: str, *, passing: bool = False) -> Report:
    """The GPU is not there (yet)."""
    return Report(
        conditions=(_condition(CONDITION_ALLOCATED, "False", reason, message),),
        message=message[:MESSAGE_LENGTH],
        passing=passing,
    )


def rescheduling(set_aside: Sequence[ExcludedNode]) -> Report:
    """Sched's last decision was undone, and it has not made another one."""
    words = "it has lost its GPU, and the scheduler has not chosen another one yet"
    if not set_aside:
        return not_allocated(Reason.UNDONE, words, passing=True)
    last = max(set_aside, key=lambda entry: entry.until)
    if last.id:
        return not_allocated(Reason.UNDONE, f"vGPU {last.id} {of_entry(last)}", passing=True)
    return not_allocated(Reason.NODE_FULL, f"node {last.node} {of_entry(last)}", passing=True)


def without_pod(
    vgpus: Sequence[VGPU], reason: Reason, message: str, *, passing: bool = False
) -> Report:
    """The GPU is there, and the pod cannot be."""
    ready = _condition(CONDITION_READY, "False", reason, message)
    return Report(
        conditions=(_allocated(vgpus), ready) if vgpus else (ready,),
        gpus=_gpus(vgpus),
        node=vgpus[0].spec.node_name if vgpus else "",
        message=message[:MESSAGE_LENGTH],
        passing=passing,
        acted_on=reason == Reason.INVALID_POD,
    )


def of_pod(
    pod: Pod,
    vgpus: Sequence[VGPU],
    problem: tuple[Reason, str] | None = None,
    reported: Sequence[AllocatedGPU] = (),
) -> Report:
    """There is a pod, and the status tells how it is.

    Args:
        pod: the SharePod's.
        vgpus: those that it shares; none for a pod without a GPU.
        problem: what has become of its GPU, where that is no good news.
        reported: what the status says already; it outlives the vGPUs of a pod that has ended.
    """
    ready, passing = _ready(pod)
    conditions: tuple[Condition, ...] = (ready,)
    gpus = _gpus(vgpus) or (tuple(reported) if pod.terminal else ())
    if gpus:
        allocated = _allocated(vgpus)
        if pod.terminal:
            words = "the pod has ended and its part of the GPU is given back"
            allocated = _condition(CONDITION_ALLOCATED, "False", Reason.RELEASED, words)
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
        message=pod.status.message[:MESSAGE_LENGTH] or ("" if passing else _problem(ready)),
        passing=passing and not problem,
    )


def stopping(
    pod: Pod, vgpus: Sequence[VGPU], reported: Sequence[AllocatedGPU], late: str = ""
) -> Report:
    """The SharePod is deleted, and waits for its pod to go.

    Args:
        pod: the SharePod's.
        vgpus: those that it shares.
        reported: what the status says of them already.
        late: why that may take longer than it should; ``""`` while it does not.
    """
    found = of_pod(pod, vgpus, reported=reported)
    words = late or "the SharePod is deleted: its containers are being stopped"
    ready = _condition(CONDITION_READY, "False", Reason.STOPPING, words)
    others = tuple(each for each in found.conditions if each.type != CONDITION_READY)
    return msgspec.structs.replace(
        found, conditions=(*others, ready), message=ready.message, passing=not late
    )


def _ready(pod: Pod) -> tuple[Condition, bool]:
    """The condition Ready, and whether it only means that the pod is on its way."""
    status = pod.status
    if pod.terminal:
        words = status.message or f"the pod has ended: {status.phase}"
        ended = Reason.POD_SUCCEEDED if status.phase == "Succeeded" else Reason.POD_FAILED
        return _condition(CONDITION_READY, "False", ended, words), False
    reported = pod.condition("Ready")
    if reported is not None and reported.status == "True":
        return _condition(CONDITION_READY, "True", Reason.POD_READY, "the pod is ready"), False
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        usual = scheduled.reason == Reason.UNSCHEDULABLE
        words = scheduled.message if usual else _said(scheduled.reason, scheduled.message)
        return _condition(CONDITION_READY, "False", Reason.UNSCHEDULABLE, words), False
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _ORDINARY:
            words = f"container {container.name}: {_said(waiting.reason, waiting.message)}"
            return _condition(CONDITION_READY, "False", Reason.CONTAINER_WAITING, words), False
    if status.phase == "Pending":
        words = "the pod is being started" if pod.spec.node_name else "the pod is being scheduled"
        return _condition(CONDITION_READY, "False", Reason.POD_PENDING, words), True
    words = (
        _said(reported.reason, reported.message)
        if reported is not None
        else "no word of its containers"
    )
    return _condition(CONDITION_READY, "False", Reason.POD_NOT_READY, words), False


def _said(reason: str, message: str) -> str:
    """What Kubernetes says of a pod: its own reason, then its words."""
    return ": ".join(part for part in (reason, message) if part)


def _problem(ready: Condition) -> str:
    return "" if ready.status == "True" else ready.message


def _allocated(vgpus: Sequence[VGPU]) -> Condition:
    words = ", ".join(f"{vgpu.metadata.name} ({vgpu.spec.uuid})" for vgpu in vgpus)
    return _condition(CONDITION_ALLOCATED, "True", Reason.ALLOCATED, f"part of {words}")


def _gpus(vgpus: Sequence[VGPU]) -> tuple[AllocatedGPU, ...]:
    return tuple(
        AllocatedGPU(id=vgpu.metadata.name, uuid=vgpu.spec.uuid, model=vgpu.spec.model)
        for vgpu in vgpus
    )


def _condition(kind: str, status: str, reason: Reason, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message[:MESSAGE_LENGTH])
