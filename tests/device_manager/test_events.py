"""The events of the device manager say what happened and what to do."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from fakes import objects
from fakes.recorder import FakeRecorder
from kubeshare.api.types.constants import ANNOTATION_GPUIDS
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import ExcludedNode, SharePod
from kubeshare.device_manager.events import Events
from kubeshare.kube.controller.events import ObjectReference

SHAREPOD = SharePod(metadata=objects.metadata("s", namespace="ns"))
POD = objects.pod("p", annotations={ANNOTATION_GPUIDS: "A,B"})
NODE = objects.node("n1")
HOLDER = objects.holder("d", name="p", namespace="ns", pod_uid="pod-1")
VGPU = objects.vgpu("A", uuid="GPU-1", holders=(HOLDER, objects.holder("e", name="q")))
UNTIL = "2026-01-01T00:05:00Z"


def excluded(gpuid: str = "") -> ExcludedNode:
    return ExcludedNode(node="n1", id=gpuid, until=UNTIL, message="no cpu")


Case: TypeAlias = tuple[Callable[[Events], None], str, str, str, str, str]
"""What is recorded; about whom, reason, action, note, and the first letter of the type."""

CASES: list[Case] = [
    (lambda to: to.not_allocated(SHAREPOD, "NoGPU", "why"), "s", "NoGPU", "Allocating", "why", "W"),
    (
        lambda to: to.rescheduled(SHAREPOD, "A"),
        *(
            "s",
            "Undone",
            "Undoing",
            "its share of vGPU A is gone, or is not what it asks for; it is scheduled again",
            "N",
        ),
    ),
    (
        lambda to: to.excluded(SHAREPOD, excluded("A")),
        *("s", "Undone", "Undoing"),
        (
            f"vGPU A is of no use now (no cpu): it is set aside until {UNTIL}, and the SharePod is "
            "scheduled again"
        ),
        "W",
    ),
    (
        lambda to: to.excluded(SHAREPOD, excluded()),
        *("s", "NodeFull", "Undoing"),
        (
            f"node n1 has no room for its pod (no cpu): it is set aside until {UNTIL}, and the "
            "SharePod is scheduled again"
        ),
        "W",
    ),
    (
        lambda to: to.pod_unschedulable(POD, "no cpu"),
        *("p", "Unschedulable", "Allocating"),
        (
            "no cpu; it keeps its share of vGPU A, B and waits for room on that node: delete it, "
            "and make it again, to have it scheduled elsewhere"
        ),
        "W",
    ),
    (
        lambda to: to.gpu_count_alone(POD),
        *("p", "NoGPU", "Allocating"),
        (
            "aliyun.com/gpu-count alone gives a pod no GPU: ask for aliyun.com/gpu-mem, and for "
            "several GPUs set the label aliyun.com/gpu-count"
        ),
        "W",
    ),
    (
        lambda to: to.pod_deleted_unschedulable(POD, "no cpu"),
        *("p", "NodeFull", "Undoing"),
        *("no cpu; it is deleted so that its controller makes another", "W"),
    ),
    (
        lambda to: to.allocation_lost(SHAREPOD, "gone"),
        *("s", "PartTakenBack", "Undoing"),
        *("gone: the pod is deleted, and the SharePod has its GPUs chosen again", "W"),
    ),
    (
        lambda to: to.pod_allocation_lost(POD, "gone"),
        *("p", "PartTakenBack", "Undoing", "gone", "W"),
    ),
    (lambda to: to.not_stopping(SHAREPOD, "slow"), "s", "Stopping", "Ending", "slow", "W"),
    (
        lambda to: to.gang_timed_out(SHAREPOD, "late"),
        *("s", "GangTimedOut", "Undoing"),
        *("late: all give back what they hold, and are scheduled again", "W"),
    ),
    (
        lambda to: to.activated(VGPU),
        *("A", "Active", "Activating", "GPU-1 on node n1 is shared from now on", "N"),
    ),
    (
        lambda to: to.released(VGPU),
        *("A", "Released", "Releasing", "no pod shares it: the GPU goes back to node n1", "N"),
    ),
    (
        lambda to: to.reclaimed(VGPU),
        *("A", "Yielded", "Releasing"),
        *("no pod shares it, and one waits for a whole GPU: it goes back to node n1", "N"),
    ),
    (
        lambda to: to.unknown_policy(NODE, "mine"),
        *("n1", "UnknownPoolPolicy", "Pooling"),
        (
            "its label kubeshare.nthu/pool says mine, which is no pool policy: onDemand, "
            "reservation or hybrid. The configured one holds"
        ),
        "W",
    ),
    (
        lambda to: to.ownership(NODE, Reason.GPUS_OFFERED, "because"),
        *("n1", "GPUsOffered", "TakingOver", "because", "W"),
    ),
    (
        lambda to: to.ownership(NODE, Reason.OWNED, "because"),
        *("n1", "Owned", "TakingOver", "because", "N"),
    ),
    (
        lambda to: to.placeholder_failed(VGPU, "OOM", again=True),
        *("A", "PlaceholderFailed", "Allocating"),
        *("its placeholder failed (OOM); it is made again", "W"),
    ),
    (
        lambda to: to.placeholder_failed(VGPU, "", again=False),
        *("A", "PlaceholderFailed", "Allocating"),
        (
            "its placeholder failed (no reason given); it is not made again: delete the SharePods "
            "on this vGPU to have them scheduled elsewhere"
        ),
        "W",
    ),
    (
        lambda to: to.recovered(VGPU),
        *("A", "Healthy", "Recovering"),
        *("GPU GPU-1 is healthy and kept for it again: it takes holders", "N"),
    ),
    (
        lambda to: to.other_gpu(VGPU, again=True),
        *("A", "OtherGPU", "Regaining"),
        *("its new placeholder was not given GPU GPU-1; it is tried again", "W"),
    ),
    (
        lambda to: to.other_gpu(VGPU, again=False),
        *("A", "OtherGPU", "Regaining"),
        (
            "its new placeholder was not given GPU GPU-1; its GPU is given up: it goes with its "
            "holders"
        ),
        "W",
    ),
    (lambda to: to.evicted(POD, "why"), "p", "GPUEviction", "Evicting", "why", "W"),
    (
        lambda to: to.eviction_refused(POD, "why"),
        *("p", "EvictionRefused", "Evicting"),
        *("it should leave its GPU, and its eviction is retried: why", "W"),
    ),
    (
        lambda to: to.node_lost(VGPU, HOLDER),
        *("A", "NodeLost", "Releasing"),
        *("node n1 was deleted, and the pod of demand d is not there: its share is released", "W"),
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_an_event(case: Case) -> None:
    record, name, reason, action, note, kind = case
    recorder: Any = FakeRecorder()
    record(Events(recorder))
    [(about, *words)] = recorder.emitted
    assert about.name == name
    assert words == [reason, action, note, {"W": "Warning", "N": "Normal"}[kind]]


def test_a_degraded_vgpu_is_reported_to_it_and_to_each_of_its_pods() -> None:
    recorder: Any = FakeRecorder()
    Events(recorder).degraded(VGPU, Reason.GPU_LOST, "GPU-1 is lost")
    first, second = recorder.emitted
    note = "GPU-1 is lost. It takes no new holder"
    assert (first[0].name, *first[1:]) == ("A", "GPULost", "Fencing", note, "Warning")
    pod = ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="p", uid="pod-1")
    note = "vGPU A that this pod shares is degraded: GPU-1 is lost"
    assert second == (pod, "GPULost", "Fencing", note, "Warning")


def test_a_requester_learns_of_the_pod_that_asks_for_a_node() -> None:
    recorder: Any = FakeRecorder()
    about = ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="p", uid="u")
    Events(recorder).gpu_missing(about, "ask-1")
    note = (
        "no node has a GPU for it: pod kubeshare-system/ask-1 asks for one, so that a cluster "
        "autoscaler adds a node. It is scheduled when there is one"
    )
    assert recorder.emitted == [(about, "GPUMissing", "Asking", note, "Normal")]
