"""What the status of a SharePod says, for each state of its pod and its GPUs."""

from typing import Any

import msgspec
import pytest

from fakes import objects
from kubeshare.api.types.core_v1 import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import AllocatedGPU, ExcludedNode
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.device_manager.sharepod import status
from kubeshare.device_manager.sharepod.status import MESSAGE_LENGTH, Report
from kubeshare.kube.meta import Condition

VGPUS = (objects.vgpu("A", uuid="GPU-1"), objects.vgpu("B", uuid="GPU-2"))
GPUS = (
    AllocatedGPU(id="A", uuid="GPU-1", model="V100"),
    AllocatedGPU(id="B", uuid="GPU-2", model="V100"),
)
LONG = "x" * (MESSAGE_LENGTH + 1)


def condition(kind: str, value: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=value, reason=reason, message=message)


ALLOCATED = condition("Allocated", "True", "Allocated", "share of A (GPU-1), B (GPU-2)")


def pod(*, node: str = "n1", **of_status: Any) -> Pod:
    made = objects.pod("a", node)
    return msgspec.structs.replace(made, status=PodStatus(**of_status))


def waiting(reason: str, message: str = "") -> tuple[ContainerStatus, ...]:
    state = ContainerState(waiting=Waiting(reason, message))
    return ContainerStatus("first"), ContainerStatus("main", state)


def test_a_sharepod_without_gpus_shows_nothing_but_why() -> None:
    expected = Report(
        conditions=(condition("Allocated", "False", "GPUNotFree", "why"),), message="why"
    )
    assert status.not_allocated(Reason.GPU_NOT_FREE, "why") == expected
    blocked = status.blocked(Blocker(Reason.GPU_NOT_FREE, "why", transient=True))
    assert blocked == msgspec.structs.replace(expected, passing=True)
    assert status.blocked(Blocker(Reason.GPU_NOT_FREE, "why")) == expected


def test_a_message_is_cut_in_the_condition_too() -> None:
    report = status.not_allocated(Reason.GPU_NOT_FREE, LONG)
    assert [report.message, report.conditions[0].message] == [LONG[:-1]] * 2
    assert status.without_pod((), Reason.NAME_TAKEN, LONG).message == LONG[:-1]
    assert status.refused(LONG, shares=True).message == LONG[:-1]
    assert status.of_pod(pod(message=LONG), ()).message == LONG[:-1]


def excluded(until: str, gpuid: str = "") -> ExcludedNode:
    return ExcludedNode(node="n1", id=gpuid, until=until, message="no cpu")


@pytest.mark.parametrize(
    ("set_aside", "reason", "message"),
    [
        (
            [],
            "Undone",
            "it has lost its GPU, and the scheduler has not chosen another one yet",
        ),
        ([excluded("2026-01-01")], "NodeFull", "node n1 set aside until 2026-01-01: no cpu"),
        (
            [excluded("2026-01-02", "A"), excluded("2026-01-01")],
            "Undone",
            "vGPU A set aside until 2026-01-02: no cpu",
        ),
    ],
)
def test_a_rescheduled_sharepod_shows_what_was_set_aside_last(
    set_aside: list[ExcludedNode], reason: str, message: str
) -> None:
    assert status.rescheduling(set_aside) == Report(
        conditions=(condition("Allocated", "False", reason, message),),
        message=message,
        passing=True,
    )


def test_a_pod_that_cannot_be_created_leaves_the_gpus_shown() -> None:
    ready = condition("Ready", "False", Reason.NAME_TAKEN, "why")
    assert status.without_pod(VGPUS, Reason.NAME_TAKEN, "why") == Report(
        conditions=(ALLOCATED, ready), node="n1", gpus=GPUS, message="why"
    )
    assert status.without_pod((), Reason.NAME_TAKEN, "why", passing=True) == Report(
        conditions=(ready,), message="why", passing=True
    )


def test_a_refused_pod_leaves_nothing_allocated() -> None:
    ready = condition("Ready", "False", Reason.INVALID_POD, "why")
    words = "its pod is refused, so its share of the GPU is released"
    allocated = condition("Allocated", "False", Reason.RELEASED, words)
    assert status.refused("why", shares=True) == Report(
        conditions=(allocated, ready), message="why", acted_on=True
    )
    assert status.refused("why", shares=False) == Report(
        conditions=(ready,), message="why", acted_on=True
    )


READY = Condition(type="Ready", status="True")


@pytest.mark.parametrize(
    ("shown", "reason", "message", "passing"),
    [
        (pod(), "PodPending", "the pod is being started", True),
        (pod(node=""), "PodPending", "the pod is being scheduled", True),
        (
            pod(container_statuses=waiting("ContainerCreating")),
            *("PodPending", "the pod is being started", True),
        ),
        (
            pod(container_statuses=waiting("PodInitializing")),
            *("PodPending", "the pod is being started", True),
        ),
        (
            pod(container_statuses=waiting("ErrImagePull", "no such image")),
            *("ContainerWaiting", "container main: ErrImagePull: no such image", False),
        ),
        (
            pod(phase="Running", container_statuses=waiting("CrashLoopBackOff")),
            *("ContainerWaiting", "container main: CrashLoopBackOff", False),
        ),
        (
            pod(conditions=(condition("PodScheduled", "False", "Unschedulable", "no cpu"),)),
            *("Unschedulable", "no cpu", False),
        ),
        (
            pod(conditions=(condition("PodScheduled", "False", "SchedulerError", "no cpu"),)),
            *("Unschedulable", "SchedulerError: no cpu", False),
        ),
        (
            pod(conditions=(condition("PodScheduled", "True", "", ""),)),
            *("PodPending", "the pod is being started", True),
        ),
        (
            pod(phase="Running"),
            *("PodNotReady", "the state of its containers is not known", False),
        ),
        (
            pod(
                phase="Running",
                conditions=(condition("Ready", "False", "ContainersNotReady", "main is not"),),
            ),
            *("PodNotReady", "ContainersNotReady: main is not", False),
        ),
        (
            pod(phase="Running", conditions=(condition("Ready", "Unknown", "", "lost"),)),
            *("PodNotReady", "lost", False),
        ),
    ],
)
def test_a_pod_that_is_not_ready(shown: Pod, reason: str, message: str, passing: bool) -> None:
    report = status.of_pod(shown, VGPUS)
    assert report == Report(
        conditions=(ALLOCATED, condition("Ready", "False", reason, message)),
        node=shown.spec.node_name,
        gpus=GPUS,
        phase=shown.status.phase,
        message="" if passing else message,
        passing=passing,
    )


def test_a_pod_that_is_ready() -> None:
    shown = pod(
        phase="Running", conditions=(READY,), pod_ip="10.0.0.1", start_time="2026-01-01T00:00:00Z"
    )
    expected = Report(
        conditions=(ALLOCATED, condition("Ready", "True", "PodReady", "the pod is ready")),
        node="n1",
        gpus=GPUS,
        phase="Running",
        pod_ip="10.0.0.1",
        start_time="2026-01-01T00:00:00Z",
    )
    assert status.of_pod(shown, VGPUS) == expected
    without_gpu = status.of_pod(shown, (), reported=GPUS)
    assert (without_gpu.conditions, without_gpu.gpus) == (expected.conditions[1:], ())


@pytest.mark.parametrize(
    ("phase", "own", "reason", "message"),
    [
        ("Succeeded", "", "PodSucceeded", "the pod has ended: Succeeded"),
        ("Failed", "", "PodFailed", "the pod has ended: Failed"),
        ("Failed", "Evicted", "PodFailed", "Evicted"),
    ],
)
def test_an_ended_pod_shows_the_gpus_that_it_had(
    phase: str, own: str, reason: str, message: str
) -> None:
    ended = ContainerState(terminated=Terminated("2026-01-01T00:01:00Z"))
    shown = pod(phase=phase, message=own, container_statuses=(ContainerStatus("main", ended),))
    assert status.of_pod(shown, (), reported=GPUS) == Report(
        conditions=(
            condition(
                "Allocated",
                "False",
                "Released",
                "the pod has ended and its share of the GPU is released",
            ),
            condition("Ready", "False", reason, message),
        ),
        node="n1",
        gpus=GPUS,
        phase=phase,
        message=message,
        finish_time="2026-01-01T00:01:00Z",
    )


def test_what_is_wrong_with_the_gpus_is_not_passing() -> None:
    report = status.of_pod(pod(), VGPUS, (Reason.GPU_LOST, "GPU-1 is lost"))
    assert report.conditions[0] == condition("Allocated", "False", "GPULost", "GPU-1 is lost")
    assert not report.passing
    ended = status.of_pod(pod(phase="Failed"), VGPUS, (Reason.GPU_LOST, "GPU-1 is lost"))
    assert ended.conditions[0].reason == "Released"


@pytest.mark.parametrize("overdue", ["", "a finalizer keeps it"])
def test_a_deleted_sharepod_shows_why_it_is_still_there(overdue: str) -> None:
    running = ContainerState(running=Running("2026-01-01T00:00:00Z"))
    shown = pod(phase="Running", container_statuses=(ContainerStatus("main", running),))
    message = overdue or "the SharePod is deleted: its containers are being stopped"
    assert status.stopping(shown, VGPUS, (), overdue) == Report(
        conditions=(ALLOCATED, condition("Ready", "False", "Stopping", message)),
        node="n1",
        gpus=GPUS,
        phase="Running",
        message=message,
        passing=not overdue,
    )
