"""Maps watch events to the plain pods that must be reconciled."""

from collections.abc import Iterable

from kubeshare.api.pods import has_shares
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.sharepod.event_handlers import requester_key
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import Key


class PodEventHandlers:
    """Finds the plain pods that a change concerns.

    Args:
        cluster_state: the vGPUs and pods.
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool

    def on_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """The pod itself, if it holds or held shares of GPUs other than through a SharePod."""
        states = (change.object,) if change.old is None else (change.old, change.object)
        has = any(map(has_shares, states)) or self._pool.held_by(change.object.metadata.uid)
        return [change.key] if has else []

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
