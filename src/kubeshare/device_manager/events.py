"""The device manager's events: what happened, and what to do about it."""

from kubeshare.api.types.constants import LABEL_POOL, NAMESPACE
from kubeshare.api.types.core_v1 import NODES, PODS, Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS, ExcludedNode, Holder, SharePod
from kubeshare.kube.controller.events import (
    NORMAL,
    WARNING,
    EventRecorder,
    ObjectReference,
    reference,
)


class Events:
    """Tells what became of SharePods and vGPUs.

    Args:
        recorder: writes the events.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def waits(self, sharepod: SharePod, reason: str, message: str) -> None:
        """It cannot run now, and the message says why."""
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, reason, "Allocating", message, type=WARNING)

    def undone(self, sharepod: SharePod, gpuids: str) -> None:
        """The part that Sched had taken is gone: it is asked again."""
        note = f"its part of vGPU {gpuids} is gone; it is scheduled again"
        self._recorder.emit(reference(SHAREPODS, sharepod), "Undone", "Undoing", note)

    def set_aside(self, sharepod: SharePod, entry: ExcludedNode) -> None:
        """What Sched chose for it, a node or a vGPU, is of no use to it now."""
        if entry.id:
            reason, what, wrong = Reason.UNDONE, f"vGPU {entry.id}", "is of no use now"
        else:
            reason, what, wrong = Reason.NODE_FULL, f"node {entry.node}", "has no room for its pod"
        note = (
            f"{what} {wrong} ({entry.message}): it is set aside until {entry.until}, and the "
            "SharePod is scheduled again"
        )
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, reason, "Undoing", note, type=WARNING)

    def pod_unschedulable(self, pod: Pod, words: str) -> None:
        """A pod of its own has a part of a GPU on a node that has no room for it."""
        note = (
            f"{words}; it keeps its part of vGPU {', '.join(pod.gpuids)} and waits for room on "
            "that node: delete it, and make it again, to have it scheduled elsewhere"
        )
        self._recorder.emit(
            reference(PODS, pod), Reason.UNSCHEDULABLE, "Allocating", note, type=WARNING
        )

    def pod_deleted_unschedulable(self, pod: Pod, words: str) -> None:
        """A pod with a controller has nowhere to go."""
        note = f"{words}; it is deleted so that its controller makes another"
        self._recorder.emit(reference(PODS, pod), Reason.NODE_FULL, "Undoing", note, type=WARNING)

    def allocation_lost(self, sharepod: SharePod, words: str) -> None:
        """Its pod is bound and will never begin."""
        note = f"{words}: the pod is deleted, and the SharePod has its GPUs chosen again"
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, Reason.PART_TAKEN_BACK, "Undoing", note, type=WARNING)

    def pod_allocation_lost(self, pod: Pod, words: str) -> None:
        """A plain pod is bound and will never begin."""
        regarding = reference(PODS, pod)
        self._recorder.emit(regarding, Reason.PART_TAKEN_BACK, "Undoing", words, type=WARNING)

    def not_stopping(self, sharepod: SharePod, words: str) -> None:
        """It is deleted, and its pod does not go."""
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, Reason.STOPPING, "Ending", words, type=WARNING)

    def gang_timed_out(self, sharepod: SharePod, words: str) -> None:
        """Its gang has not started in time."""
        note = f"{words}: all give back what they hold, and are scheduled again"
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, "GangTimedOut", "Undoing", note, type=WARNING)

    def activated(self, vgpu: VGPU) -> None:
        """The node has said which GPU the placeholder was given."""
        note = f"{vgpu.spec.uuid} on node {vgpu.spec.node_name} is shared from now on"
        self._vgpu(vgpu, "Active", "Activating", note)

    def released(self, vgpu: VGPU) -> None:
        """Nobody holds a part any more, and the pool's policy does not keep it."""
        note = f"nobody shares it: the GPU goes back to node {vgpu.spec.node_name}"
        self._vgpu(vgpu, "Released", "Releasing", note)

    def reclaimed(self, vgpu: VGPU) -> None:
        """Nobody holds a part any more, and a pod waits for a whole GPU."""
        note = (
            f"nobody shares it, and a pod waits for a whole GPU: it goes back to node "
            f"{vgpu.spec.node_name}"
        )
        self._vgpu(vgpu, "Yielded", "Releasing", note)

    def unknown_policy(self, node: Node, policy: str) -> None:
        """A node's label names a pool policy that there is not."""
        note = (
            f"its label {LABEL_POOL} says {policy}, which is no pool policy: onDemand, reservation "
            "or hybrid. The configured one holds"
        )
        about = reference(NODES, node)
        self._recorder.emit(about, "UnknownPoolPolicy", "Pooling", note, type=WARNING)

    def placeholder_failed(self, vgpu: VGPU, message: str, *, again: bool) -> None:
        """The placeholder did not get its GPU."""
        then = (
            "it is made again"
            if again
            else "it is not made again: delete the SharePods on this vGPU to have them "
            "scheduled elsewhere"
        )
        note = f"its placeholder failed ({message or 'no reason given'}); {then}"
        self._vgpu(vgpu, "PlaceholderFailed", "Allocating", note, WARNING)

    def degraded(self, vgpu: VGPU, reason: Reason, message: str) -> None:
        """Its GPU has failed, or may be another pod's by now: told to it and to all who share."""
        self._vgpu(vgpu, reason, "Fencing", f"{message}. It takes no new holder", WARNING)
        for holder in vgpu.status.holders:
            if holder.pod_uid:
                note = f"vGPU {vgpu.metadata.name} that this pod shares is degraded: {message}"
                self._recorder.emit(_pod(holder), reason, "Fencing", note, type=WARNING)

    def recovered(self, vgpu: VGPU) -> None:
        """Its GPU is healthy and its own again."""
        note = f"GPU {vgpu.spec.uuid} is healthy and kept for it again: it takes holders"
        self._vgpu(vgpu, Reason.HEALTHY, "Recovering", note)

    def other_gpu(self, vgpu: VGPU, *, again: bool) -> None:
        """A new placeholder did not get the GPU of the one that was lost."""
        then = "it is tried again" if again else "its GPU is given up: it goes with its holders"
        note = f"its new placeholder was not given GPU {vgpu.spec.uuid}; {then}"
        self._vgpu(vgpu, "OtherGPU", "Regaining", note, WARNING)

    def evicted(self, pod: Pod, why: str) -> None:
        """A pod was evicted because it cannot stay on its GPU."""
        self._recorder.emit(reference(PODS, pod), "GPUEviction", "Evicting", why, type=WARNING)

    def eviction_refused(self, pod: Pod, why: str) -> None:
        """A pod should leave its GPU, and its disruption budget keeps it."""
        note = f"it should leave its GPU, and is asked again: {why}"
        self._recorder.emit(reference(PODS, pod), "EvictionRefused", "Evicting", note, type=WARNING)

    def node_lost(self, vgpu: VGPU, holder: Holder) -> None:
        """Nobody will ever say that a pod has stopped, and it is gone."""
        note = (
            f"node {vgpu.spec.node_name} was deleted, and pod {holder.namespace}/{holder.name} "
            "is not there: its part is given back"
        )
        self._vgpu(vgpu, "NodeLost", "Releasing", note, WARNING)

    def gpu_missing(self, about: ObjectReference, pod: str) -> None:
        """No node has a GPU for it, and a pod says so to cluster autoscalers."""
        note = (
            f"no node has a GPU for it: pod {NAMESPACE}/{pod} asks for one, so that a cluster "
            "autoscaler adds a node. It is scheduled when there is one"
        )
        self._recorder.emit(about, "GPUMissing", "Asking", note)

    def _vgpu(self, vgpu: VGPU, reason: str, action: str, note: str, kind: str = NORMAL) -> None:
        self._recorder.emit(reference(VGPUS, vgpu), reason, action, note, type=kind)


def _pod(holder: Holder) -> ObjectReference:
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        namespace=holder.namespace,
        name=holder.name,
        uid=holder.pod_uid,
    )
