"""The pods that may be preempted: those that say so, and that Sched has placed.

One whose author named its GPU would take it again, and one that its node has not been told of
holds nothing that its leaving would free.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SHAREPODS, VGPU
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import PREEMPTIBLE, standing_of


class Victim(Struct, frozen=True):
    """A pod that may be preempted: the uid of its demand, and its priority."""

    pod: Pod
    uid: str
    priority: int


def is_marked(pod: Pod) -> bool:
    """It says that it may be preempted, and is there to be."""
    there = pod.spec.node_name and not pod.terminal and pod.metadata.deletion_timestamp is None
    return bool(there) and pod.metadata.annotations.get(PREEMPTIBLE) == "true"


def victims_of(marked: Iterable[Pod], held_by: Callable[[str], Sequence[VGPU]]) -> Iterator[Victim]:
    """Those that may be asked to leave.

    Args:
        marked: pods that say that they may be preempted.
        held_by: the vGPUs of which a demand (uid) has a part.
    """
    for pod in marked:
        uid = _demand_of(pod)
        if not _placed_by_us(pod, uid, held_by(uid)):
            continue
        metadata = {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations}
        try:
            standing = standing_of({"metadata": metadata})
        except InvalidValueError:
            continue
        yield Victim(pod, uid, standing.priority)


def _placed_by_us(pod: Pod, uid: str, vgpus: Sequence[VGPU]) -> bool:
    """It holds its part by a decision of the scheduler, and its node knows of it."""
    held = [holder_of(vgpu, uid) for vgpu in vgpus]
    return bool(held) and all(
        holder is not None and holder.attempt > 0 and holder.pod_uid == pod.metadata.uid
        for holder in held
    )


def _demand_of(pod: Pod) -> str:
    """The uid of the demand that a pod is for: its SharePod's, or its own."""
    controller = pod.metadata.controller
    shared = controller is not None and controller.kind == SHAREPODS.kind
    return controller.uid if controller is not None and shared else pod.metadata.uid
