"""Records the device manager's events: what happened and what to do."""

from kubeshare.api.configuration import ConfigMap
from kubeshare.api.holders import one_of_each_demand
from kubeshare.api.types.constants import LABEL_POOL, NAMESPACE
from kubeshare.api.types.core_v1 import NODES, PODS, Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS, ExcludedNode, Holder, SharePod
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY
from kubeshare.kube.controller.events import (
    NORMAL,
    WARNING,
    EventRecorder,
    ObjectReference,
    reference,
)
from kubeshare.kube.resources import CONFIG_MAPS


class Events:
    """Records events about SharePods, pods, vGPUs and nodes.

    Args:
        recorder: writes the events.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def not_allocated(self, sharepod: SharePod, reason: str, message: str) -> None:
        """A SharePod cannot run now."""
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, reason, "Allocating", message, type=WARNING)

    def rescheduled(self, sharepod: SharePod, gpuid: str) -> None:
        """A holder that Sched added is gone or wrong, and the decision was cleared."""
        note = (
            f"its share of vGPU {gpuid} is gone, or is not what it asks for; it is scheduled again"
        )
        self._recorder.emit(reference(SHAREPODS, sharepod), "Undone", "Undoing", note)

    def excluded(self, sharepod: SharePod, entry: ExcludedNode) -> None:
        """The node or vGPU that Sched chose cannot be used now, and the decision was cleared."""
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

    def pod_unschedulable(self, pod: Pod, message: str) -> None:
        """A bare pod holds a share of a GPU on a node that has no room for it."""
        note = (
            f"{message}; it keeps its share of vGPU {', '.join(pod.gpuids)} and waits for room on "
            "that node: delete it, and make it again, to have it scheduled elsewhere"
        )
        self._recorder.emit(
            reference(PODS, pod), Reason.UNSCHEDULABLE, "Allocating", note, type=WARNING
        )

    def gpu_count_alone(self, pod: Pod) -> None:
        """A pod asks for gpushare's number of GPUs and for no memory of them."""
        note = (
            f"{GPU_COUNT} alone gives a pod no GPU: ask for {GPU_MEMORY}, and for several GPUs set "
            f"the label {GPU_COUNT}"
        )
        self._recorder.emit(reference(PODS, pod), "NoGPU", "Allocating", note, type=WARNING)

    def pod_deleted_unschedulable(self, pod: Pod, message: str) -> None:
        """A pod with a controller is deleted because it is unschedulable."""
        note = f"{message}; it is deleted so that its controller makes another"
        self._recorder.emit(reference(PODS, pod), Reason.NODE_FULL, "Undoing", note, type=WARNING)

    def allocation_lost(self, sharepod: SharePod, message: str) -> None:
        """The bound pod of a SharePod lost a holder and is deleted."""
        note = f"{message}: the pod is deleted, and the SharePod has its GPUs chosen again"
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, Reason.PART_TAKEN_BACK, "Undoing", note, type=WARNING)

    def pod_allocation_lost(self, pod: Pod, message: str) -> None:
        """A bound plain pod lost a holder and will not start."""
        regarding = reference(PODS, pod)
        self._recorder.emit(regarding, Reason.PART_TAKEN_BACK, "Undoing", message, type=WARNING)

    def not_stopping(self, sharepod: SharePod, message: str) -> None:
        """The pod of a deleted SharePod does not go."""
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, Reason.STOPPING, "Ending", message, type=WARNING)

    def gang_timed_out(self, sharepod: SharePod, message: str) -> None:
        """The gang of a SharePod has not started in time."""
        note = f"{message}: all give back what they hold, and are scheduled again"
        regarding = reference(SHAREPODS, sharepod)
        self._recorder.emit(regarding, "GangTimedOut", "Undoing", note, type=WARNING)

    def activated(self, vgpu: VGPU) -> None:
        """The node has reported which GPU the placeholder was assigned."""
        note = f"{vgpu.spec.uuid} on node {vgpu.spec.node_name} is shared from now on"
        self._vgpu(vgpu, "Active", "Activating", note)

    def released(self, vgpu: VGPU) -> None:
        """A vGPU has no holders, and the pool's policy does not keep it."""
        note = f"no pod shares it: the GPU goes back to node {vgpu.spec.node_name}"
        self._vgpu(vgpu, "Released", "Releasing", note)

    def reclaimed(self, vgpu: VGPU) -> None:
        """A vGPU has no holders, and a native pod waits for a whole GPU."""
        note = (
            f"no pod shares it, and one waits for a whole GPU: it goes back to node "
            f"{vgpu.spec.node_name}"
        )
        self._vgpu(vgpu, "Yielded", "Releasing", note)

    def unknown_policy(self, node: Node, policy: str) -> None:
        """The label of a node names a pool policy that does not exist."""
        note = (
            f"its label {LABEL_POOL} says {policy}, which is no pool policy: onDemand, reservation "
            "or hybrid. The configured one holds"
        )
        about = reference(NODES, node)
        self._recorder.emit(about, "UnknownPoolPolicy", "Pooling", note, type=WARNING)

    def ownership(self, node: Node, reason: Reason, summary: str) -> None:
        """Whether KubeShare owns the GPUs of a node has changed, or why not; names no pods.

        Users of the namespace ``default`` read the events of nodes and vGPUs.
        """
        conflicts = (Reason.GPUS_OFFERED, Reason.GPUS_IN_USE, Reason.AGENT_OUTDATED)
        kind = WARNING if reason in conflicts else NORMAL
        self._recorder.emit(reference(NODES, node), reason, "TakingOver", summary, type=kind)

    def placeholder_failed(self, vgpu: VGPU, message: str, *, again: bool) -> None:
        """A placeholder failed before it got a GPU; ``again`` says whether another is created."""
        then = (
            "it is made again"
            if again
            else "it is not made again: delete the SharePods on this vGPU to have them "
            "scheduled elsewhere"
        )
        note = f"its placeholder failed ({message or 'no reason given'}); {then}"
        self._vgpu(vgpu, "PlaceholderFailed", "Allocating", note, WARNING)

    def degraded(self, vgpu: VGPU, reason: Reason, message: str) -> None:
        """A GPU has failed or lost its placeholder: one event for the vGPU and each of its pods."""
        self._vgpu(vgpu, reason, "Fencing", f"{message}. It takes no new holder", WARNING)
        for holder in one_of_each_demand(vgpu):
            if holder.pod_uid:
                note = f"vGPU {vgpu.gpuid} that this pod shares is degraded: {message}"
                self._recorder.emit(_pod(holder), reason, "Fencing", note, type=WARNING)

    def recovered(self, vgpu: VGPU) -> None:
        """A GPU is healthy and has its placeholder again."""
        note = f"GPU {vgpu.spec.uuid} is healthy and kept for it again: it takes holders"
        self._vgpu(vgpu, Reason.HEALTHY, "Recovering", note)

    def other_gpu(self, vgpu: VGPU, *, again: bool) -> None:
        """A new placeholder got another GPU; ``again`` says whether another one is created."""
        then = "it is tried again" if again else "its GPU is given up: it goes with its holders"
        note = f"its new placeholder was not given GPU {vgpu.spec.uuid}; {then}"
        self._vgpu(vgpu, "OtherGPU", "Regaining", note, WARNING)

    def evicted(self, pod: Pod, why: str) -> None:
        """A pod was evicted because it must leave its GPU."""
        self._recorder.emit(reference(PODS, pod), "GPUEviction", "Evicting", why, type=WARNING)

    def eviction_refused(self, pod: Pod, why: str) -> None:
        """A disruption budget refused the eviction of a pod that must leave its GPU."""
        note = f"it should leave its GPU, and its eviction is retried: {why}"
        self._recorder.emit(reference(PODS, pod), "EvictionRefused", "Evicting", note, type=WARNING)

    def node_lost(self, vgpu: VGPU, holder: Holder) -> None:
        """The node of a holder was deleted, and its pod is gone; names no pod."""
        note = (
            f"node {vgpu.spec.node_name} was deleted, and the pod of demand {holder.demand} "
            "is not there: its share is released"
        )
        self._vgpu(vgpu, "NodeLost", "Releasing", note, WARNING)

    def invalid_quotas(self, configmap: ConfigMap, message: str) -> None:
        """The ConfigMap of gpu-admission is not valid, or not in one of its namespaces."""
        note = f"{message}; the last valid quotas stay in force"
        regarding = reference(CONFIG_MAPS, configmap)
        self._recorder.emit(regarding, "InvalidQuotas", "Reading", note, type=WARNING)

    def gpu_missing(self, about: ObjectReference, pod: str) -> None:
        """A pod was created that shows a cluster autoscaler the unmet demand of a requester."""
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
