"""What wakes what in the device manager: a change wakes those who look at what has changed.

Ten SharePods share a GPU, and each of them, its pod and its part of the vGPU change several
times while it starts. What looked again at each of these changes would do nothing nine times
out of ten, so each question here is which of the steps could come to another answer.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.pods import has_shares, unschedulable
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

BY_GPUID = "names a vGPU"
"""The index by which SharePods are found that name a vGPU."""


def index_by_gpuid(sharepod_store: Store[Raw]) -> None:
    """Have SharePods found by the vGPUs that they name."""
    sharepod_store.add_index(BY_GPUID, sharepods.gpuids_of)


def with_assumed(
    pool: VGPUStore, handlers: Callable[[Change[VGPU]], Iterable[Key]]
) -> Callable[[Change[VGPU]], Iterable[Key]]:
    """What a change of a vGPU wakes, beside what was seen of it and beside what was written since.

    While a watch is broken, a part is taken and given back: what the watch tells then is what
    it told before, and yet somebody was looked at who had that part in the way.
    """

    def woken(change: Change[VGPU]) -> Iterable[Key]:
        yield from handlers(change)
        written = pool.superseded(change)
        if written is not None:
            yield from handlers(Change(change.type, change.object, written))

    return woken


class SharePodEventHandlers:
    """Which SharePods a change concerns.

    Args:
        sharepod_store: the SharePods.
        cluster_state: the vGPUs and pods.
        waiting: SharePods for which a GPU given by name has no room.
        status_writer: knows what this program has said in their status.
    """

    def __init__(
        self,
        sharepod_store: Store[Raw],
        cluster_state: ClusterState,
        waiting: UnschedulableQueue[Key],
        status_writer: StatusWriter,
    ) -> None:
        self._sharepod_store = sharepod_store
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._waiting = waiting
        self._status_writer = status_writer

    def all_waiting(self, _: object) -> Iterable[Key]:
        """Those for which a GPU given by name has no room."""
        return self._waiting.oldest_first()

    def of_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """Itself, unless somebody else's word, or our own, is all that is new of it."""
        old, raw = change.old, change.object
        key = key_of(raw)
        if change.type == ADDED and _is_undecided(raw):
            return ()
        if change.type == DELETED or old is None or sharepods.input_changed(old, raw):
            return (key,)
        if not self._status_writer.differs(old, raw) or self._status_writer.is_own(key, raw):
            return ()
        return (key,)

    def of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """Those that name it: all where the GPU itself is another, or those whose part is.

        Who does not name it yet looks at it when it does. That the node has been told of
        a pod is no news to its SharePod, by which it was told.
        """
        old, new = change.old, change.object
        gpuid = new.metadata.name
        if change.type == DELETED or old is None or _differs_for_all(old, new):
            return self._naming(gpuid)
        before, now = _parts(old), _parts(new)
        changed = {
            _requester(holder)
            for part in before.keys() | now.keys()
            if _differ(before.get(part), now.get(part))
            and (holder := now.get(part) or before[part])
        }
        more_room = not before.keys() <= now.keys()
        # Who has a pod has heard before which GPU it is.
        came = old.status.phase != new.status.phase
        if not (changed or came):
            return ()
        having = {_requester(holder) for holder in new.status.holders}
        return [
            key
            for key in self._naming(gpuid)
            if key in changed
            or (more_room and key not in having)
            or (came and self._cluster_state.pod(key) is None)
        ]

    def of_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """Its own, or of a placeholder, those that wait for its GPU."""
        if not pod_differs(change):
            return ()
        pod = change.object
        if self._cluster_state.is_own_write(change) and not pod.placeholder_of:
            return ()  # whoever has made it went on with the answer
        vgpu = self._pool.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is None:
            own = [pod.metadata.key] if pod.metadata.key in self._sharepod_store else []
            return [*own, *(self._waiting.oldest_first() if pod.whole_gpus else ())]
        naming = self._naming(vgpu.metadata.name)
        if not _is_on_its_way(vgpu, change):
            return naming
        # Who has been told of nothing looks again by itself, when that has lasted.
        return [key for key in naming if self._is_told(key)]

    def _naming(self, gpuid: str) -> list[Key]:
        return sorted(self._sharepod_store.keys_by_index(BY_GPUID, gpuid))

    def _is_told(self, key: Key) -> bool:
        status = (self._sharepod_store.by_key(key) or {}).get("status") or {}
        conditions = status.get("conditions") or ()
        return any(each["type"] == CONDITION_ALLOCATED for each in conditions)


class PodEventHandlers:
    """Which plain pods a change concerns.

    Args:
        cluster_state: the vGPUs and pods.
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool

    def of_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """Its own key, if it has parts of GPUs itself rather than through a SharePod, or had."""
        states = (change.object,) if change.old is None else (change.old, change.object)
        has = any(map(has_shares, states)) or self._pool.held_by(change.object.metadata.uid)
        return [change.key] if has else []

    def of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """Those that have a part of it, or had, and wait for their node to be told."""
        old, new = change.old, change.object
        before, now = old.status.holders if old is not None else (), new.status.holders
        same = change.type != DELETED and old is not None and old.spec == new.spec
        kept = set(before).intersection(now) if same else set()
        return [
            key
            for holder in dict.fromkeys((*before, *now))
            if not holder.pod_uid
            and holder not in kept
            and (pod := self._cluster_state.pod(key := _requester(holder))) is not None
            and pod.metadata.uid == holder.demand
        ]


def pod_differs(change: Change[core_v1.Pod]) -> bool:
    """More than its version, of all that is read of it."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return _said(old) != _said(new)


def _said(pod: core_v1.Pod) -> tuple[object, ...]:
    metadata = pod.metadata
    return (
        metadata.deletion_timestamp,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        metadata.finalizers,
        pod.spec,
        # Where kube-scheduler means to bind it is news only of one for which there was no room.
        msgspec.structs.replace(pod.status, nominated_node_name=""),
        unschedulable(pod),
    )


def _is_undecided(raw: Raw) -> bool:
    """It asks Sched for a GPU, and nobody has said anything of it yet."""
    spec = raw.get("spec") or {}
    asks = "request" in (spec.get("gpu") or {})
    going = "deletionTimestamp" in raw["metadata"]
    return asks and not going and not spec.get("nodeName") and not raw.get("status")


def _differs_for_all(old: VGPU, new: VGPU) -> bool:
    """The GPU itself is another one, or nothing is known of it that was, or the reverse."""
    before, now = map(_gpu, (old, new))
    came = old.status.phase == "Creating" and new.status.phase == "Active"
    return before != now or (old.status.phase != new.status.phase and not came)


def _gpu(vgpu: VGPU) -> tuple[Any, ...]:
    metadata = vgpu.metadata
    about = (metadata.uid, metadata.annotations, metadata.deletion_timestamp)
    return about, vgpu.spec, vgpu.status.conditions


def share_key(holder: Holder) -> tuple[str, int]:
    """What tells one part of a vGPU from all others that it ever had."""
    return holder.demand, holder.attempt


def _parts(vgpu: VGPU) -> dict[tuple[str, int], Holder]:
    return {share_key(holder): holder for holder in vgpu.status.holders}


def _differ(old: Holder | None, new: Holder | None) -> bool:
    """It came or went, or is another pod's."""
    return old is None or new is None or old.pod_uid not in ("", new.pod_uid)


def _requester(holder: Holder) -> Key:
    return Key(holder.namespace, holder.name)


def _is_on_its_way(vgpu: VGPU, change: Change[core_v1.Pod]) -> bool:
    """A vGPU was being made before a change of its placeholder, and is no further afterwards."""
    old, pod = change.old, change.object
    if change.type == DELETED or (pod.spec.node_name and (old is None or not old.spec.node_name)):
        return False
    if pod.metadata.deletion_timestamp is not None:
        return False
    found = [blocker(vgpu, state) for state in (old, pod)]
    return all(each is not None and each.transient for each in found)
