"""Selects the pods that may be preempted.

They carry the annotation, and Sched has placed them: a pod whose author named its GPU would
take it again, and a pod whose holder does not name it yet has nothing on its node to free.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from kubeshare.api.holders import holder_of
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
    """Whether a pod is annotated as preemptible, bound to a node and not terminating."""
    bound = pod.spec.node_name and not pod.terminal and pod.metadata.deletion_timestamp is None
    return bool(bound) and pod.metadata.annotations.get(PREEMPTIBLE) == "true"


def victims_of(
    marked: Iterable[Pod],
    held_by: Callable[[str], Sequence[VGPU]],
    max_priority: Callable[[str], int],
) -> Iterator[Victim]:
    """The pods that may be evicted.

    Args:
        marked: pods that are marked as preemptible.
        held_by: returns the vGPUs on which a demand (uid) holds shares.
        max_priority: the highest priority that demands of a namespace may have.
    """
    for pod in marked:
        uid = demand_uid(pod)
        if not _placed_by_scheduler(pod, uid, held_by(uid)):
            continue
        metadata = {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations}
        try:
            standing = standing_of({"metadata": metadata}, max_priority(pod.metadata.namespace))
        except InvalidValueError:
            continue
        yield Victim(pod, uid, standing.priority)


def _placed_by_scheduler(pod: Pod, uid: str, vgpus: Sequence[VGPU]) -> bool:
    """All its holders come from decisions of Sched and name this pod."""
    held = [holder_of(vgpu, uid) for vgpu in vgpus]
    return bool(held) and all(
        holder is not None and holder.attempt > 0 and holder.pod_uid == pod.metadata.uid
        for holder in held
    )


def demand_uid(pod: Pod) -> str:
    """The uid of the demand of a pod: its SharePod's, or its own."""
    controller = pod.metadata.controller
    from_sharepod = controller is not None and controller.kind == SHAREPODS.kind
    return controller.uid if controller is not None and from_sharepod else pod.metadata.uid
