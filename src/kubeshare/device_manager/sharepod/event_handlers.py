"""Maps watch events to the SharePods that must be reconciled.

Ten SharePods may share a GPU, and each of them, its pod and its holder change several times while
it starts. Nine out of ten reconciles on these changes would do nothing. So each handler passes
only the changes on which a step of the controller could have another result.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.pod_state import unschedulable
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import CONDITION_ALLOCATED
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.api.vgpu_readiness import blocker
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.kube.cache.store import ADDED, DELETED, Change, Store
from kubeshare.kube.meta import Key, key_of
from kubeshare.kube.resources import Raw

BY_VGPU: Final = "names a vGPU"
"""The index of SharePods by the node and the GPUIDs that they name."""


def index_by_vgpu(sharepod_store: Store[Raw]) -> None:
    """Add the index of SharePods by the vGPUs that they name."""
    sharepod_store.add_index(BY_VGPU, _named_vgpus)


def with_assumed(
    pool: VGPUStore, handler: Callable[[Change[VGPU]], Iterable[Key]]
) -> Callable[[Change[VGPU]], Iterable[Key]]:
    """Wrap a handler so that it also compares a vGPU with this program's own last write.

    While the watch is disconnected, a holder may be added and removed again. The watch then
    reports the same vGPU as before, but objects may have been reconciled against the holder.
    """

    def handle(change: Change[VGPU]) -> Iterable[Key]:
        yield from handler(change)
        written = pool.superseded(change)
        if written is not None:
            yield from handler(Change(change.type, change.object, written))

    return handle


class SharePodEventHandlers:
    """Finds the SharePods that a change concerns.

    Args:
        sharepod_store: the SharePods.
        cluster_state: the vGPUs and pods.
        unschedulable_queue: SharePods whose given GPU has no room.
        status_writer: what this program has written into their status.
    """

    def __init__(
        self,
        sharepod_store: Store[Raw],
        cluster_state: ClusterState,
        unschedulable_queue: UnschedulableQueue[Key],
        status_writer: StatusWriter,
    ) -> None:
        self._sharepod_store = sharepod_store
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._unschedulable = unschedulable_queue
        self._status_writer = status_writer

    def all_unschedulable(self, _: object) -> Iterable[Key]:
        """The SharePods whose given GPU has no room."""
        return self._unschedulable.oldest_first()

    def on_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """The SharePod itself, unless only another program's or our own status write is new."""
        old, raw = change.old, change.object
        key = key_of(raw)
        if change.type == ADDED and _is_undecided(raw):
            return ()
        if change.type == DELETED or old is None or sharepods.input_changed(old, raw):
            return (key,)
        if not self._status_writer.differs(old, raw) or self._status_writer.is_own(key, raw):
            return ()
        return (key,)

    def on_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """The SharePods that name a vGPU: all of them when the GPU itself has changed.

        Otherwise those whose holder has changed, those without a holder when one has left, and
        those without a pod when the vGPU has become active. A pod uid in a holder concerns no
        SharePod, since its own reconcile has written it.

        Also the SharePods that wait in a namespace which a quota may charge less now.
        """
        return *self._of_vgpu(change), *self._waiting_in(_quota_freed(change))

    def _of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        old, new = change.old, change.object
        if change.type == DELETED or old is None or _differs_for_all(old, new):
            return self._naming(new)
        before, now = _shares(old), _shares(new)
        changed = {
            requester_key(holder)
            for share in before.keys() | now.keys()
            if _holder_differs(before.get(share), now.get(share))
            and (holder := now.get(share) or before[share])
        }
        more_room = not before.keys() <= now.keys()
        # A SharePod with a pod has been reconciled since the GPU is known.
        activated = old.status.phase != new.status.phase
        if not (changed or activated):
            return ()
        holding = {requester_key(holder) for holder in new.status.holders}
        return [
            key
            for key in self._naming(new)
            if key in changed
            or (more_room and key not in holding)
            or (activated and self._cluster_state.pod(key) is None)
        ]

    def _waiting_in(self, namespaces: AbstractSet[str]) -> Iterable[Key]:
        if not namespaces:
            return ()
        return [key for key in self._unschedulable.oldest_first() if key.namespace in namespaces]

    def on_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """The SharePod of a pod, or the SharePods that wait for the GPU of a placeholder."""
        if not pod_differs(change):
            return ()
        pod = change.object
        if self._cluster_state.is_own_write(change) and not pod.placeholder_of:
            return ()  # the reconcile that created the pod used the response
        vgpu = self._pool.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is None:
            own = [pod.metadata.key] if pod.metadata.key in self._sharepod_store else []
            return [*own, *(self._unschedulable.oldest_first() if pod.whole_gpus else ())]
        naming = self._naming(vgpu)
        if not _stays_passing(vgpu, change):
            return naming
        # A SharePod without the condition is requeued until the state has lasted.
        return [key for key in naming if self._has_condition(key)]

    def _naming(self, vgpu: VGPU) -> list[Key]:
        value = _vgpu_value(vgpu.spec.node_name, vgpu.gpuid)
        return sorted(self._sharepod_store.keys_by_index(BY_VGPU, value))

    def _has_condition(self, key: Key) -> bool:
        status = (self._sharepod_store.by_key(key) or {}).get("status") or {}
        conditions = status.get("conditions") or ()
        return any(each["type"] == CONDITION_ALLOCATED for each in conditions)


def _named_vgpus(raw: Raw) -> list[str]:
    """Index function: the node and the GPUIDs of a SharePod; none before its node is decided."""
    node = (raw.get("spec") or {}).get("nodeName")
    return [_vgpu_value(node, gpuid) for gpuid in sharepods.gpuids_of(raw)] if node else []


def _vgpu_value(node: str, gpuid: str) -> str:
    # The name of a node contains no slash.
    return f"{node}/{gpuid}"


def pod_differs(change: Change[core_v1.Pod]) -> bool:
    """Whether any field of a pod that the device manager reads has changed."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return _fields_read(old) != _fields_read(new)


def _fields_read(pod: core_v1.Pod) -> tuple[object, ...]:
    metadata = pod.metadata
    return (
        metadata.deletion_timestamp,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        metadata.finalizers,
        pod.spec,
        # The nominated node matters only for whether the pod counts as unschedulable.
        msgspec.structs.replace(pod.status, nominated_node_name=""),
        unschedulable(pod),
    )


def _is_undecided(raw: Raw) -> bool:
    """The SharePod is new: it asks Sched for a GPU, and has no status."""
    spec = raw.get("spec") or {}
    asks = "request" in (spec.get("gpu") or {})
    deleted = "deletionTimestamp" in raw["metadata"]
    return asks and not deleted and not spec.get("nodeName") and not raw.get("status")


def _quota_freed(change: Change[VGPU]) -> AbstractSet[str]:
    """The namespaces for which a quota may allow more than before.

    A holder has left, or one with an exclusion label has come: then the GPU is charged as a whole,
    and its label-mates cost nothing more.
    """
    before = _shares(change.old) if change.old is not None else {}
    now = _shares(change.object) if change.type != DELETED else {}
    left = {before[share].namespace for share in before.keys() - now.keys()}
    came = (now[share] for share in now.keys() - before.keys())
    return left | {holder.namespace for holder in came if holder.exclusion}


def _differs_for_all(old: VGPU, new: VGPU) -> bool:
    """Whether the GPU itself or its phase has changed, other than by becoming active."""
    before, now = map(_without_holders, (old, new))
    activated = old.status.phase == "Creating" and new.status.phase == "Active"
    return before != now or (old.status.phase != new.status.phase and not activated)


def _without_holders(vgpu: VGPU) -> tuple[Any, ...]:
    metadata = vgpu.metadata
    about = (metadata.uid, metadata.annotations, metadata.deletion_timestamp)
    return about, vgpu.spec, vgpu.status.conditions


def share_key(holder: Holder) -> tuple[str, int, str]:
    """Identifies one share of a vGPU, also among former ones."""
    return holder.demand, holder.attempt, holder.share


def requester_key(holder: Holder) -> Key:
    """The namespace and name of the SharePod or pod of a holder."""
    return Key(holder.namespace, holder.name)


def _shares(vgpu: VGPU) -> dict[tuple[str, int, str], Holder]:
    return {share_key(holder): holder for holder in vgpu.status.holders}


def _holder_differs(old: Holder | None, new: Holder | None) -> bool:
    """Whether a holder is new or gone, or has another pod."""
    return old is None or new is None or old.pod_uid not in ("", new.pod_uid)


def _stays_passing(vgpu: VGPU, change: Change[core_v1.Pod]) -> bool:
    """Whether a change of a placeholder leaves its vGPU in a passing state."""
    old, pod = change.old, change.object
    if change.type == DELETED or (pod.spec.node_name and (old is None or not old.spec.node_name)):
        return False
    if pod.metadata.deletion_timestamp is not None:
        return False
    found = [blocker(vgpu, state) for state in (old, pod)]
    return all(each is not None and each.transient for each in found)
