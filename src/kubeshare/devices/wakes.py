"""What wakes what in the device manager: a change wakes those who look at what has changed.

Ten SharePods share a GPU, and each of them, its pod and its part of the vGPU change several
times while it starts. What looked again at each of these changes would do nothing nine times
out of ten, so each question here is which of the steps could come to another answer.
"""

from collections.abc import Iterable
from typing import Any

from kubeshare.api import cluster, sharepods
from kubeshare.api.coming import hindrance
from kubeshare.api.inventory import Inventory
from kubeshare.api.names import CONDITION_ALLOCATED, LABEL_VGPU
from kubeshare.api.pods import shares
from kubeshare.api.v1 import VGPU, GPUNode, Holder
from kubeshare.api.waiting import Waiting
from kubeshare.devices.evict import Evictions
from kubeshare.devices.mirror import Mirror
from kubeshare.kube.meta import Key, ObjectMeta, key_of
from kubeshare.kube.resources import Raw
from kubeshare.kube.store import ADDED, DELETED, Change, Store

BY_GPUID = "names a vGPU"
"""The index by which SharePods are found that name a vGPU."""


def index_by_gpuid(asked: Store[Raw]) -> None:
    """Have SharePods found by the vGPUs that they name."""
    asked.add_index(BY_GPUID, sharepods.gpuids_of)


class VGPUWakes:
    """Which vGPUs a change concerns.

    Args:
        inventory: the vGPUs.
        nodes: the nodes, as last seen.
        evictions: says of which vGPUs pods have to leave.
    """

    def __init__(
        self, inventory: Inventory, nodes: Store[cluster.Node], evictions: Evictions
    ) -> None:
        self._pool = inventory.pool
        self._nodes = nodes
        self._evictions = evictions

    def of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """Itself, unless its node has only been told of pods that may stay."""
        old, new = change.old, change.object
        if old is not None and change.type != DELETED and _but_for_pods(old) == _but_for_pods(new):
            known = self._nodes.get(new.spec.node_name) is not None
            if known and not self._evictions.reason(new):
                return ()
        return (new.metadata.key,)

    def of_pod(self, change: Change[cluster.Pod]) -> Iterable[Key]:
        """That whose placeholder it is, or those of which it or its SharePod has a part."""
        old, pod = change.old, change.object
        states = (pod,) if old is None else (old, pod)
        named = {state.metadata.labels.get(LABEL_VGPU, "") for state in states} - {""}
        held = {vgpu.metadata.name for vgpu in self._pool.held_by(pod.metadata.uid)}
        if not (named or held) or not self._concerns(change, bool(held)):
            return ()
        return [Key("", name) for name in sorted(named | held)]

    def of_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """Those of which it has a part that it may not ask for any more."""
        raw = change.object
        held = [vgpu.metadata.key for vgpu in self._pool.held_by(raw["metadata"]["uid"])]
        if not held or change.type == DELETED:
            return held
        sharepod = sharepods.view(raw)
        if sharepods.going(sharepod) or sharepods.finished(sharepod):
            return held
        # Sched takes parts of what it does not name yet before it says so.
        wanted = sharepods.gpuids(sharepod) if sharepods.decided(sharepod) else None
        return [] if wanted is None else [key for key in held if key.name not in wanted]

    def of_node(self, node: cluster.Node | GPUNode) -> Iterable[Key]:
        """All that are on it."""
        return [vgpu.metadata.key for vgpu in self._pool.on_node(node.metadata.name)]

    def _concerns(self, change: Change[cluster.Pod], holds: bool) -> bool:  # noqa: FBT001 - a fact of the pod
        old, pod = change.old, change.object
        if change.type == DELETED:
            return True
        if pod.placeholder_of or (old is not None and old.placeholder_of):
            return differs(change)
        if holds:
            return old is None or _place(old) != _place(pod)
        if old is not None:
            return _end(old) != _end(pod)
        # A SharePod's pod that comes frees nothing; but it may have to leave.
        named = self._pool.get(pod.metadata.labels.get(LABEL_VGPU, ""))
        holders = named.status.holders if named is not None else ()
        return any(holder.pod_uid == pod.metadata.uid for holder in holders)


class SharePodWakes:
    """Which SharePods a change concerns.

    Args:
        asked: the SharePods.
        inventory: the vGPUs and pods.
        waiting: SharePods for which a GPU given by name has no room.
        mirror: knows what this program has said in their status.
    """

    def __init__(
        self, asked: Store[Raw], inventory: Inventory, waiting: Waiting[Key], mirror: Mirror
    ) -> None:
        self._asked = asked
        self._inventory = inventory
        self._pool = inventory.pool
        self._waiting = waiting
        self._mirror = mirror

    def all_waiting(self, _: object) -> Iterable[Key]:
        """Those for which a GPU given by name has no room."""
        return self._waiting.oldest_first()

    def of_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """Itself, unless somebody else's word, or our own, is all that is new of it."""
        old, raw = change.old, change.object
        key = key_of(raw)
        if change.type == ADDED and _is_undecided(raw):
            return ()
        if change.type == DELETED or old is None or sharepods.asks_otherwise(old, raw):
            return (key,)
        if not self._mirror.differs(old, raw) or self._mirror.is_own(key, raw):
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
            _asker(holder)
            for part in before.keys() | now.keys()
            if _differ(before.get(part), now.get(part))
            and (holder := now.get(part) or before[part])
        }
        more_room = not before.keys() <= now.keys()
        # Who has a pod has heard before which GPU it is.
        came = old.status.phase != new.status.phase
        if not (changed or came):
            return ()
        having = {_asker(holder) for holder in new.status.holders}
        return [
            key
            for key in self._naming(gpuid)
            if key in changed
            or (more_room and key not in having)
            or (came and self._inventory.pod(key) is None)
        ]

    def of_pod(self, change: Change[cluster.Pod]) -> Iterable[Key]:
        """Its own, or of a placeholder, those that wait for its GPU."""
        if not differs(change):
            return ()
        pod = change.object
        if self._inventory.is_known(change) and not pod.placeholder_of:
            return ()  # whoever has made it went on with the answer
        vgpu = self._pool.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is None:
            own = [pod.metadata.key] if pod.metadata.key in self._asked else []
            return [*own, *(self._waiting.oldest_first() if pod.whole_gpus else ())]
        naming = self._naming(vgpu.metadata.name)
        if not _is_on_its_way(vgpu, change):
            return naming
        # Who has been told of nothing looks again by itself, when that has lasted.
        return [key for key in naming if self._is_told(key)]

    def _naming(self, gpuid: str) -> list[Key]:
        return sorted(self._asked.keys_by_index(BY_GPUID, gpuid))

    def _is_told(self, key: Key) -> bool:
        status = (self._asked.by_key(key) or {}).get("status") or {}
        conditions = status.get("conditions") or ()
        return any(each["type"] == CONDITION_ALLOCATED for each in conditions)


class PodWakes:
    """Which plain pods a change concerns.

    Args:
        inventory: the vGPUs and pods.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._pool = inventory.pool

    def of_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        """Its own key, if it has parts of GPUs itself rather than through a SharePod, or had."""
        return [pod.metadata.key] if self._pool.held_by(pod.metadata.uid) or shares(pod) else []

    def of_vgpu(self, vgpu: VGPU) -> Iterable[Key]:
        """Those that have a part of it and wait for their node to be told."""
        return [
            _asker(holder)
            for holder in vgpu.status.holders
            if not holder.pod_uid
            and (pod := self._inventory.pod(_asker(holder))) is not None
            and pod.metadata.uid == holder.demand
        ]


def differs(change: Change[cluster.Pod]) -> bool:
    """More than its version, of all that is read of it."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (_said(old.metadata), old.spec, old.status) != (
        _said(new.metadata),
        new.spec,
        new.status,
    )


def _said(metadata: ObjectMeta) -> tuple[object, ...]:
    return (
        metadata.deletion_timestamp,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        metadata.finalizers,
    )


def _place(pod: cluster.Pod) -> tuple[object, ...]:
    """What says whether a plain pod may still have its part of a vGPU."""
    return pod.spec.node_name, pod.gated, pod.gpuids, *_end(pod)


def _end(pod: cluster.Pod) -> tuple[object, ...]:
    """What says of a pod whose it is, and whether it is over."""
    metadata = pod.metadata
    label = metadata.labels.get(LABEL_VGPU)
    return pod.terminal, metadata.deletion_timestamp, metadata.owner_references, label


def _is_undecided(raw: Raw) -> bool:
    """It asks Sched for a GPU, and nobody has said anything of it yet."""
    spec = raw.get("spec") or {}
    asks = "request" in (spec.get("gpu") or {})
    going = "deletionTimestamp" in raw["metadata"]
    return asks and not going and not spec.get("nodeName") and not raw.get("status")


def _but_for_pods(vgpu: VGPU) -> tuple[Any, ...]:
    """All of a vGPU but which pods its node has been told of."""
    metadata, status = vgpu.metadata, vgpu.status
    about = (metadata.uid, metadata.deletion_timestamp, metadata.labels, metadata.annotations)
    holders = [(_part(holder), holder.namespace, holder.name) for holder in status.holders]
    return about, vgpu.spec, status.phase, status.conditions, holders


def _differs_for_all(old: VGPU, new: VGPU) -> bool:
    """The GPU itself is another one, or nothing is known of it that was, or the reverse."""
    before, now = map(_gpu, (old, new))
    came = old.status.phase == "Creating" and new.status.phase == "Active"
    return before != now or (old.status.phase != new.status.phase and not came)


def _gpu(vgpu: VGPU) -> tuple[Any, ...]:
    metadata = vgpu.metadata
    about = (metadata.uid, metadata.annotations, metadata.deletion_timestamp)
    return about, vgpu.spec, vgpu.status.conditions


def _part(holder: Holder) -> tuple[str, str, int]:
    return holder.demand, holder.container, holder.attempt


def _parts(vgpu: VGPU) -> dict[tuple[str, str, int], Holder]:
    return {_part(holder): holder for holder in vgpu.status.holders}


def _differ(old: Holder | None, new: Holder | None) -> bool:
    """It came or went, or is another pod's."""
    return old is None or new is None or old.pod_uid not in ("", new.pod_uid)


def _asker(holder: Holder) -> Key:
    return Key(holder.namespace, holder.name)


def _is_on_its_way(vgpu: VGPU, change: Change[cluster.Pod]) -> bool:
    """A vGPU was being made before a change of its placeholder, and is no further afterwards."""
    old, pod = change.old, change.object
    if change.type == DELETED or (pod.spec.node_name and (old is None or not old.spec.node_name)):
        return False
    if pod.metadata.deletion_timestamp is not None:
        return False
    found = [hindrance(vgpu, state) for state in (old, pod)]
    return all(each is not None and each.passing for each in found)
