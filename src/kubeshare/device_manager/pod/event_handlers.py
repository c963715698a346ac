"""Maps watch events to the plain pods that must be reconciled."""

from collections.abc import Iterable

from kubeshare.api.pod_state import has_shares, is_bound_with_cores
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.sharepod.event_handlers import requester_key
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY
from kubeshare.kube.cache.store import ADDED, DELETED, Change
from kubeshare.kube.meta import Key


def asks_for_count_alone(pod: core_v1.Pod) -> bool:
    """Whether a pod asks for gpushare's number of GPUs and for no memory: it gets no GPU."""
    limits = [each.resources.limits for each in (*pod.spec.init_containers, *pod.spec.containers)]
    return any(GPU_COUNT in each for each in limits) and not any(
        GPU_MEMORY in each for each in limits
    )


class PodEventHandlers:
    """Finds the plain pods that a change concerns.

    Args:
        cluster_state: the vGPUs and pods.
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool

    def on_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """The pod itself, if it holds or held shares of GPUs other than through a SharePod.

        Also a bound one that asks for cores, whose GPUs may have to be named, and a new one that
        asks for a number of GPUs alone, to say that it gets none.
        """
        if change.type == ADDED and not change.initial and asks_for_count_alone(change.object):
            return [change.key]
        states = (change.object,) if change.old is None else (change.old, change.object)
        has = any(map(has_shares, states)) or self._pool.held_by(change.object.metadata.uid)
        return [change.key] if has or is_bound_with_cores(change.object) else []

    def on_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """The pods whose holder has changed and has no pod uid yet."""
        old, new = change.old, change.object
        before, now = old.status.holders if old is not None else (), new.status.holders
        same = change.type != DELETED and old is not None and old.spec == new.spec
        unchanged = set(before).intersection(now) if same else set()
        return [
            key
            for holder in dict.fromkeys((*before, *now))
            if not holder.pod_uid
            and holder not in unchanged
            and (pod := self._cluster_state.pod(key := requester_key(holder))) is not None
            and pod.metadata.uid == holder.demand
        ]
